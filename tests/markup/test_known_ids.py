"""What a model has read of a conversation, out of the notes of its turns."""

import base64

import msgspec

from service.harmony import tokens
from service.responses.chat.reading import READ, known_of
from store.turn import StoredMessage

Turns = tuple[tuple[int, int], ...]


def note(model: str, stay: int, ids: list[int], turns: Turns = ()) -> StoredMessage:
    packed = base64.b64encode(tokens.pack(ids)).decode()
    return StoredMessage(READ, b"", name=msgspec.json.encode([model, stay, packed, turns]).decode())


def known(*notes: StoredMessage) -> tuple[list[int], Turns]:
    found = known_of(notes, "smol")
    return found.ids.tolist(), found.turns


def test_each_note_goes_on_where_the_ids_before_it_stay() -> None:
    first, second = note("smol", 0, [1, 2, 3], ((1, 3),)), note("smol", 3, [4, 5], ((4, 5),))
    assert known(first, second) == ([1, 2, 3, 4, 5], ((1, 3), (4, 5)))
    assert known(first, note("smol", 2, [9, 8], ((3, 4),))) == ([1, 2, 9, 8], ((3, 4),))


def test_behind_another_model_a_model_begins_anew() -> None:
    first, other, again = note("smol", 0, [1, 2]), note("talker", 0, [7]), note("smol", 0, [5])
    assert known(first, other) == ([], ())
    assert known(first, other, again) == ([5], ())


def test_a_note_that_goes_on_from_more_than_there_is_says_nothing() -> None:
    assert known(note("smol", 0, [1, 2]), note("smol", 4, [5])) == ([], ())
    assert known() == ([], ())
