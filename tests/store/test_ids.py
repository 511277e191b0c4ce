"""Ids, tenants and keys: each id leads to its shard and its tree, and says whether this store has made it."""

from collections.abc import Iterator
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import NotFound
from store.ids import ENTROPY_BYTES, Ids, tree_of
from store.keys import (
    BY_HAND_MARK,
    CONVERSATION_MARK,
    HEX_DIGITS,
    NO_RESPONSES,
    OMISSION_MARK,
    SECRET_BYTES,
    Keyspace,
    checked_tenant,
    conversation_id,
    id_of,
    mark_of,
    shard_of,
)

SECRET = b"s" * SECRET_BYTES
MARKS = st.sampled_from(["", CONVERSATION_MARK, BY_HAND_MARK, OMISSION_MARK])
ENTROPY = st.binary(min_size=ENTROPY_BYTES, max_size=ENTROPY_BYTES)


def maker(*entropy: bytes, secret: bytes = SECRET, shards: int = 256) -> Ids:
    given: Iterator[bytes] = iter(entropy)
    made = Ids(Keyspace("p", shards), lambda count: next(given)[:count])
    if secret:
        made.prove_by(secret)
    return made


@given(ENTROPY, ENTROPY, MARKS, MARKS, st.integers(1, 256))
def test_a_child_has_the_shard_and_the_tree_of_its_parent(
    one: bytes, other: bytes, mark: str, below: str, shards: int
) -> None:
    ids = maker(one, other, shards=shards)
    parent = ids.new(mark=mark)
    child = ids.new(parent, mark=below)
    assert (shard_of(child), tree_of(child)) == (shard_of(parent), tree_of(parent))
    assert (mark_of(child) == below) or not below
    assert [ids.made(each) for each in (parent, child)] == [True, True]


@given(ENTROPY, MARKS)
def test_a_new_id_is_one_of_its_kind(entropy: bytes, mark: str) -> None:
    digits = maker(entropy).new(mark=mark)
    keyspace = Keyspace("p", 256)
    if mark == CONVERSATION_MARK:
        assert keyspace.conversation("acme", conversation_id(digits)).digits == digits
    else:
        assert keyspace.digits(id_of(digits)) == digits
        assert (mark_of(digits) in NO_RESPONSES) == bool(mark)


@pytest.mark.parametrize("mark", NO_RESPONSES)
def test_a_random_tree_is_never_taken_for_a_mark(mark: str) -> None:
    digits = maker(bytes.fromhex(mark) + bytes(ENTROPY_BYTES)).new()
    assert mark_of(digits) not in NO_RESPONSES
    assert len(digits) == HEX_DIGITS


@given(ENTROPY, MARKS, st.integers(0, HEX_DIGITS - 1))
def test_a_changed_digit_fails_the_check_wherever_it_is(entropy: bytes, mark: str, at: int) -> None:
    ids = maker(entropy)
    digits = ids.new(mark=mark)
    changed = digits[:at] + f"{int(digits[at], 16) ^ 1:x}" + digits[at + 1 :]
    assert not ids.made(changed)


@given(ENTROPY)
def test_another_store_has_not_made_it(entropy: bytes) -> None:
    digits = maker(entropy).new()
    assert not maker(secret=b"t" * SECRET_BYTES).made(digits)
    assert not maker(secret=b"").made(digits)


ID = "resp_" + "01" + "a" * 46
FAMILIES = ("node", "messages", "response", "pins", "runs", "tree", "job", "spec", "log", "snapshot", "events")


@pytest.mark.parametrize(
    "id",
    [
        *("", ID[:-1], ID + "\n", "conv_" + ID[5:], ID[:-1] + "\u0661", ID[:-1] + ":", "resp_02" + "a" * 46),
    ],
)
def test_anything_but_a_well_formed_id_of_a_shard_is_not_found(id: str) -> None:
    with pytest.raises(NotFound):
        Keyspace("p", 2).digits(id)


@pytest.mark.parametrize("tenant", ["", "a" * 65, "a/b", "a:b", "{a}", "ä", "a\n"])
def test_a_tenant_that_could_be_taken_for_another_key_is_refused(tenant: str) -> None:
    with pytest.raises(ValueError, match="tenant"):
        checked_tenant(tenant)


@pytest.mark.parametrize(("prefix", "shards"), [("", 1), ("a{b", 1), ("a", 0), ("a", 257)])
def test_a_keyspace_that_can_not_work_is_refused(prefix: str, shards: int) -> None:
    with pytest.raises(ValueError, match=r"prefix|shards"):
        Keyspace(prefix, shards)


def test_all_keys_of_a_tree_have_the_shard_alone_as_hash_tag() -> None:
    turn = Keyspace("p", 2).turn("acme", ID)
    names = [*astuple(turn.shard), *map(turn.key, FAMILIES)]
    assert all(name.startswith("p:{01}:") for name in names)
    assert len(set(names)) == len(names)
