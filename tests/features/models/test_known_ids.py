"""What a model has sampled of a conversation, out of the notes of its turns; and the prompts that are made with it."""

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.features.models.known_ids import common, key_behind, known_of, note_of, with_known
from service.features.models.markup.chat import Chat
from service.responses.output.reading import READ, KnownTurns, Templated
from store.turn import StoredMessage

END, USER, OPEN, THINK, CALL = range(5)
"""What ends a turn, what opens one of the user's and one of the model's; and two other marks."""

ENDS, MARKS = {END}, {THINK, CALL}

Ids = list[int]
Place = tuple[int, int]


def spoken(salt: bytes, before: KnownTurns) -> Chat:
    """How a response is read, as far as its note is concerned."""
    none, empty = b"[]", b"{}"
    key = key_behind(before.key, salt)
    return Chat("qwen3", {}, (END,), {}, empty, none, none, none, empty, salt=salt, key=key)


def note(
    prompt: Ids, turns: tuple[Place, ...], sampled: Ids, *before: StoredMessage, model: str = "smol"
) -> StoredMessage:
    """The note of a response whose prompt had these turns, behind the notes of others."""
    chat = spoken(bytes([len(before)]), known_of(before, model))
    first = Templated(array("I", prompt), turns)
    return note_of(model, chat, first, first, array("I", sampled))


def sampled_by(*notes: StoredMessage) -> list[tuple[int, Ids]]:
    """How many ids stand before each turn, and which were sampled."""
    return [(turn.gap, turn.ids.tolist()) for turn in known_of(notes, "smol").turns]


# --- notes that can't be read ---


def named(name: str | None) -> StoredMessage:
    return StoredMessage(READ, b"", name=name)


WRONG = [
    *(None, "no JSON", "{}", "[" * 100_000),
    '["smol",0,"AQIDBAUGBwg=",[[0,4]]]',  # as it was before
    '["smol",-1,"AAAA",[]]',
    '["smol",0,"AAAA",[[1,"AAAA","AAAA"]]]',  # three bytes of ids
    '["smol",0,"no base64",[]]',
]


@pytest.mark.parametrize("name", WRONG)
def test_behind_a_note_that_can_not_be_read_nothing_is_known(name: str | None) -> None:
    first = note([1], (), [2])
    assert sampled_by(first, named(name)) == []
    behind = note([1, 2, 3], (), [5], first, named(name))
    assert sampled_by(first, named(name), behind) == [(3, [5])]


@given(st.text() | st.lists(st.text() | st.integers() | st.lists(st.text() | st.integers())), st.integers(0, 200))
@example("", 40)
def test_whatever_stands_in_a_note_nothing_is_raised(put: object, cut: int) -> None:
    first = note([1], (), [2, 3])
    second = (note([1, 2, 3, 4], ((1, 3),), [5], first).name or "")[:cut]
    name = second + (put if isinstance(put, str) else msgspec.json.encode(put).decode())
    known = known_of((first, named(name)), "smol")
    with_known(array("I", [1, 2, 3, 4, 5]), known, ENDS, MARKS)


# --- erasing ---


def test_without_a_note_before_it_a_digest_says_nothing_of_what_was_read() -> None:
    """Whoever has the rest may try all that could have been said."""
    first = note([1], (), [2, END])
    second = note([1, 2, END, 3], (), [5, END], first)
    guess = array("I", [1, 2, END, 3, 5, END, 6])
    whole, rest = known_of((first, second), "smol"), known_of((second,), "smol")
    assert with_known(guess, whole, ENDS, MARKS).turns == ((4, 6),)
    assert with_known(guess, rest, ENDS, MARKS).turns == ()
    assert whole.turns[0].digest == rest.turns[0].digest


# --- beside a comparison of all ids ---


class Whole(NamedTuple):
    """All ids that a model has read and sampled, and where its turns stand among them."""

    ids: Ids
    turns: tuple[Place, ...] = ()


def compared(written: Ids, known: Whole) -> Whole:
    """What `with_known` makes, by a comparison of all ids."""
    made: Ids = []
    turns: list[Place] = []
    at = place = 0
    for begin, end in known.turns:
        start, sampled = at + begin - place, known.ids[begin:end]
        if written[at:start] != known.ids[place:begin] or sampled[-1] != END:
            break
        behind = start + len(sampled)
        if written[start:behind] != sampled:
            if END not in written[start:]:
                break
            behind = written.index(END, start) + 1
            if marks(sampled) != marks(written[start:behind]):
                break
        made += written[at:start]
        turns.append((len(made), len(made) + len(sampled)))
        made += sampled
        at, place = behind, end
    return Whole(made + written[at:], tuple(turns))


def marks(ids: Ids) -> Counter[int]:
    return Counter(id for id in ids if id in MARKS)


class Said(NamedTuple):
    """A user's words, and how the model answers: what it thinks, what it says, and whether it comes to an end."""

    asked: Ids
    thoughts: Ids
    answer: Ids
    ends: bool

    @property
    def sampled(self) -> Ids:
        return [*([THINK, *self.thoughts, THINK] if self.thoughts else []), *self.answer, *([END] if self.ends else [])]

    def written(self, manner: str) -> Ids:
        """The turn as a template writes it later."""
        answer = [50, *self.answer[::-1]] if "recut" in manner else self.answer
        thoughts = [THINK, *self.thoughts, THINK] if self.thoughts and "drop" not in manner else []
        asked = [USER, *self.asked, *([51] if "asked" in manner else []), END]
        return [] if manner == "left out" else [*asked, OPEN, *thoughts, *answer, END]


MANNERS = ("same", "same", "same", "recut", "drop", "drop, recut", "asked", "left out")
WORDS = st.lists(st.integers(10, 20), max_size=4)
SAID = st.builds(Said, WORDS, WORDS, WORDS, st.sampled_from((True, True, True, False)))
TURN = st.tuples(SAID, st.lists(st.sampled_from(MANNERS), min_size=8, max_size=8), st.sampled_from(([], [], [], [9])))


@given(st.lists(TURN, max_size=8))
def test_prompts_are_those_that_a_comparison_of_all_ids_makes(turns: Sequence[tuple[Said, list[str], Ids]]) -> None:
    notes: list[StoredMessage] = []
    known, before = Whole([]), list[Said]()
    for said, manners, head in turns:
        earlier = [id for each, manner in zip(before, manners, strict=False) for id in each.written(manner)]
        written = [*head, *earlier, USER, *said.asked, END, OPEN]
        wanted, noted = compared(written, known), known_of(notes, "smol")
        made = with_known(array("I", written), noted, ENDS, MARKS)
        assert (made.ids.tolist(), made.turns) == wanted
        assert made.kept <= common(array("I", known.ids), made.ids)
        assert noted.length <= len(known.ids)
        chat = spoken(bytes([len(notes)]), noted)
        notes.append(note_of("smol", chat, made, made, array("I", said.sampled)))
        begin = len(wanted.ids)
        ids = [*wanted.ids, *said.sampled]
        known = Whole(ids, (*wanted.turns, (begin, len(ids))) if said.sampled else wanted.turns)
        before.append(said)


def test_notes_of_a_long_conversation_are_no_longer_than_those_of_a_short_one() -> None:
    """Its template drops what was thought, so that no prompt begins with the one before."""
    said = Said([11, 12], [13], [14, 15], ends=True)
    notes: list[StoredMessage] = []
    for turn in range(50):
        written = [*said.written("drop") * turn, USER, *said.asked, END, OPEN]
        known = known_of(notes, "smol")
        made = with_known(array("I", written), known, ENDS, MARKS)
        chat = spoken(bytes([turn]), known)
        notes.append(note_of("smol", chat, made, made, array("I", said.sampled)))
    sizes = [note.size for note in notes]
    assert max(sizes) <= sizes[0] + len("999") + len("9")
