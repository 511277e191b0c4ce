"""Names: what is an id, what is a tenant, and that all keys of a shard share one hash tag."""

from dataclasses import astuple

import pytest

from store.errors import NotFound
from store.keys import Keyspace, checked_tenant

ID = "resp_" + "01" + "a" * 46
FAMILIES = ("node", "messages", "response", "pins", "runs", "tree", "job", "spec", "log", "snapshot", "events")


@pytest.mark.parametrize(
    "id",
    [
        *("", "resp_", ID[:-1], ID + "a", ID.upper(), ID + "\n", " " + ID, "conv_" + ID[5:]),
        *(ID[:-1] + "g", ID[:-1] + "\u0661", ID[:-1] + ":", "resp_02" + "a" * 46),
    ],
)
def test_anything_but_a_well_formed_id_of_a_shard_is_not_found(id: str) -> None:
    with pytest.raises(NotFound):
        Keyspace("p", 2).digits(id)


@pytest.mark.parametrize("tenant", ["", "a" * 65, "a/b", "a:b", "{a}", "a b", "ä", "a\n"])
def test_a_tenant_that_could_be_taken_for_another_key_is_refused(tenant: str) -> None:
    with pytest.raises(ValueError, match="tenant"):
        checked_tenant(tenant)


def test_ordinary_tenants_are_accepted() -> None:
    for tenant in ("default", "team-7_b.prod", "a" * 64):
        assert checked_tenant(tenant) == tenant


@pytest.mark.parametrize(("prefix", "shards"), [("", 1), ("a{b", 1), ("a", 0), ("a", 257)])
def test_a_keyspace_that_can_not_work_is_refused(prefix: str, shards: int) -> None:
    with pytest.raises(ValueError, match=r"prefix|shards"):
        Keyspace(prefix, shards)


def test_all_keys_of_a_tree_have_the_shard_alone_as_hash_tag() -> None:
    turn = Keyspace("p", 2).turn("acme", ID)
    names = [*astuple(turn.shard), *map(turn.key, FAMILIES)]
    assert all(name.startswith("p:{01}:") for name in names)
    assert len(set(names)) == len(names)
