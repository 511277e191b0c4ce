"""What an archive has of a tree and what is news of it: however they come together, nothing is lost, and nothing that
was deleted comes back.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store import codec
from store.backup.archiving.merging import Merge, News, as_gone
from store.backup.archiving.parts import Index, Part, bytes_to_read, decode, encode, outline_of
from store.backup.records import ErasedMessages, Saved
from store.errors import ArchiveDamaged, NewerFormat
from store.keys import CONVERSATION_MARK, OMISSION_MARK
from store.turn import Status, StoredMessage

SMALL = 100
"""A part is full with two turns or three."""


def turn(id: str, parent: str | None = None, text: bytes = b"text" * 8) -> Saved:
    """A turn of a tree."""
    message = StoredMessage("user", text)
    return Saved(id, Status.COMPLETED, 1, 2, 3, "d" * 32, (message,), parent, b'{"id":"%b"}' % id.encode(), b"[]")


def tombstone(of: Saved, *, erased: bool = False) -> Saved:
    """What is left of a turn that others continue."""
    left = msgspec.structs.replace(of, response=None, items=None)
    return msgspec.structs.replace(left, messages=(), erased=ErasedMessages(1, 40)) if erased else left


def index(parts: Iterable[Part]) -> Index:
    """The index of what is archived."""
    made = Index()
    for part in parts:
        made.add(outline_of(encode(part)))
    return made


def merged(parts: list[Part], news: News, part_bytes: int = SMALL) -> dict[int, Part]:
    """The parts that change, in the order in which they are written."""
    merge = Merge(index(parts), news, part_bytes)
    changed: dict[int, Part] = {}
    for number in merge.numbers:
        before = parts[number] if number < len(parts) else None
        if (part := merge.part(number, before)) != before:
            changed[number] = part
    return changed


def path(parts: list[Part], id: str) -> list[Saved] | None:
    """The way to a turn."""
    ids = index(parts).path(id)
    turns = {turn.id: turn for part in reversed(parts) for turn in part.turns}
    gone = parts[0].gone if parts else {}
    return None if ids is None else [as_gone(turns[id], gone[id]) if id in gone else turns[id] for id in ids]


def found(parts: list[Part], id: str) -> Saved | None:
    """A turn that is there and not deleted."""
    there = index(parts)
    turns = {turn.id: turn for part in reversed(parts) for turn in part.turns}
    return turns[id] if id in turns and not there.is_gone(id) else None


def after(parts: list[Part], news: News, part_bytes: int = SMALL) -> list[Part]:
    """The parts once all that changes is written."""
    changed = merged(parts, news, part_bytes)
    number = {**dict(enumerate(parts)), **changed}
    return [number[at] for at in range(len(number))]


def archived(*turns: Saved, gone: Mapping[str, bool] | None = None) -> list[Part]:
    """An archive that was told of these."""
    return after([], News(turns, gone or {}))


def ids(parts: Iterable[Part]) -> list[str]:
    """Of all that is archived, deleted or not."""
    return [each.id for part in parts for each in part.turns]


A, B, C, D = turn("a"), turn("b", "a"), turn("c", "b"), turn("d", "b")


def test_a_part_that_nobody_counted_yields_to_what_went_elsewhere_since() -> None:
    stale = turn("b", "a", b"stale")
    parts = after([*archived(A, B), Part((stale,))], News((C,)))
    assert ids(parts).count("b") == 1
    assert found(parts, "b") == B


@pytest.mark.parametrize("erased", [False, True])
def test_a_tombstone_stays_one_whatever_an_old_server_has(erased: bool) -> None:
    parts = after(archived(A, B, C), News((tombstone(B, erased=erased),)))
    assert path(parts, "c") == [A, tombstone(B, erased=erased), C]
    assert after(parts, News((B,))) == parts


def test_a_deleted_turn_goes_with_the_last_one_that_continued_it() -> None:
    parts = after(archived(A, B, C, D), News((), {"b": False, "c": False}))
    assert ids(parts) == ["a", "b", "d"]
    assert ids(after(parts, News((), {"d": False}))) == ["a"]


def test_a_deleted_tree_leaves_nothing_and_its_neighbour_everything() -> None:
    other = [turn("x"), turn("y", "x")]
    parts = after(archived(A, B, C, D, *other), News(gone_trees=("a",)))
    assert sorted(ids(parts)) == ["x", "y"]
    late = after(parts, News((A, B, turn("e", "b"))))
    assert sorted(ids(late)) == ["x", "y"]
    assert path(late, "y") == other


@pytest.mark.parametrize(
    ("news", "left"),
    [
        pytest.param(News(gone_trees=("a",)), ["x", "y"], id="a tree"),
        pytest.param(News((), dict.fromkeys("bcdef", False)), ["a", "x", "y"], id="turns"),
        pytest.param(News((), dict.fromkeys("bcdef", True)), ["a", "x", "y"], id="erased turns"),
    ],
)
def test_a_deletion_ends_although_whoever_made_it_died_between_two_parts(news: News, left: list[str]) -> None:
    parts = archived(A, B, C, D, turn("e", "d"), turn("f", "e"), turn("x"), turn("y", "x"))
    changed = merged(parts, news)
    assert len(changed) == 3
    for written in range(1, len(changed)):
        torn = parts.copy()
        for number in list(changed)[:written]:
            torn[number] = changed[number]
        assert ids(after(torn, news)) == left


def named(at: str, used: int = 2, response: bytes = b"{}") -> Saved:
    """A conversation that stands at a turn."""
    id = f"resp_00{CONVERSATION_MARK}{1:034x}"
    return msgspec.structs.replace(turn(id, at), messages=(), used=used, response=response)


OMITS = turn(f"resp_00{OMISSION_MARK}{2:034x}", "b")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        pytest.param(named("b", used=9), named("d", used=1, response=b"{longer}"), id="it has moved"),
        pytest.param(named("b", used=1), named("b", used=2, response=b"{longer}"), id="it was changed"),
        pytest.param(named("d", used=1), named("c", used=2), id="it is at a fork"),
        pytest.param(named("e", used=9), named(OMITS.id, used=1), id="an item was deleted"),
        pytest.param(named("nowhere", used=9), named("a", used=1), id="it led nowhere"),
    ],
)
def test_the_later_form_of_a_conversation_stays_whichever_comes_last(earlier: Saved, later: Saved) -> None:
    tree = (A, B, C, D, turn("e", "d"), OMITS)
    for one, other in ((earlier, later), (later, earlier)):
        assert found(after(archived(*tree, one), News((other,))), later.id) == later


@pytest.mark.parametrize("changed", [{"digest": "e" * 32}, {"parent": "c"}])
def test_another_turn_of_the_same_id_changes_nothing(changed: dict[str, str]) -> None:
    parts = archived(A, B)
    forged = msgspec.structs.replace(B, response=b"{}", **changed)
    assert merged(parts, News((forged,))) == {}


def test_of_two_forms_of_a_turn_the_one_with_less_content_stays() -> None:
    some, more = (msgspec.structs.replace(A, response=text, erased=ErasedMessages(1, 40)) for text in (b"[1,2]", b"[]"))
    for forms in ((some, more), (more, some), (A, some, more), (more, A)):
        parts = list[Part]()
        for form in forms:
            parts = after(parts, News((form,)))
        assert found(parts, "a") == more


@pytest.mark.parametrize("value", [b"", b"hA", b"hB\x01\x00\x00\x80", encode(Part())[:-1], b"hA\x01\x00\x01nothing"])
def test_a_damaged_part_is_refused(value: bytes) -> None:
    with pytest.raises(ArchiveDamaged):
        decode(value)


def test_a_part_is_refused_by_name_whichever_of_its_bytes_is_damaged() -> None:
    whole = encode(Part(gone={"resp_1": True}, gone_trees=("resp_2",)))
    packed = codec.unsqueeze(whole[3:])
    damaged = [changed(whole, place) for place in range(3, len(whole))]
    damaged += [whole[:3] + codec.squeeze(changed(packed, place)) for place in range(len(packed))]
    for value in damaged:
        for read in (decode, outline_of, bytes_to_read):
            with suppress(ArchiveDamaged, NewerFormat):
                read(value)


def changed(value: bytes, place: int) -> bytes:
    """A value, one of whose bytes is another."""
    return value[:place] + bytes([value[place] ^ 0xFF]) + value[place + 1 :]


@pytest.mark.parametrize("head", [b"hA\x02\0", b"hA\x01\x01"], ids=["a later version", "sealed"])
def test_a_later_releases_part_is_refused(head: bytes) -> None:
    with pytest.raises(NewerFormat):
        decode(head + encode(Part())[len(head) :])


class Accounts(RuleBasedStateMachine):
    """Turns come, are deleted and are told again, in any order and late; one account has all that was not deleted."""

    @initialize()
    def begin(self) -> None:
        self.parts: list[Part] = []
        self.turns: dict[str, Saved] = {}
        self.gone: dict[str, bool] = {}

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        known = [id for id in self.turns if id not in self.gone]
        parent = data.draw(st.sampled_from([None, *known]))
        new = turn(f"t{len(self.turns)}", parent)
        self.turns[new.id] = new
        self.parts = after(self.parts, News((new,)))

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), erased=st.booleans())
    def delete(self, data: st.DataObject, erased: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.turns)))
        self.gone[id] = erased or self.gone.get(id, False)
        self.parts = after(self.parts, News((), {id: erased}))

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def tell_again(self, data: st.DataObject) -> None:
        late = data.draw(st.lists(st.sampled_from(list(self.turns.values())), unique_by=lambda each: each.id))
        self.parts = after(self.parts, News(late))

    @rule()
    def write_and_read(self) -> None:
        self.parts = [decode(encode(part)) for part in self.parts]

    @invariant()
    def nothing_is_lost_and_nothing_comes_back(self) -> None:
        for id, known in self.turns.items():
            if id in self.gone:
                assert found(self.parts, id) is None
            else:
                assert found(self.parts, id) == known
                way = path(self.parts, id)
                assert way is not None
                assert [each.id for each in way][-1] == id
                for each in way:
                    assert each.deleted == (each.id in self.gone)
                    assert bool(each.messages) != self.gone.get(each.id, False)

    @invariant()
    def each_turn_is_in_one_place_and_the_first_part_counts_all(self) -> None:
        assert len(ids(self.parts)) == len(set(ids(self.parts)))
        if self.parts:
            assert self.parts[0].parts == len(self.parts)


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(max_examples=40, stateful_step_count=30)
