"""The ids of a prompt that a chat template makes: beginning, wherever it can, with those that the engine has read.

A template writes the whole conversation anew each time. Its text of an answer needn't be the sampled one: a text can be
cut into ids in several ways, and a call be written with other blanks. The engine's prefix cache knows the ids that it
read and sampled, so these stand where the template says the same. Templates that leave something out later, such as
reasoning, break the prefix there, as their models expect: their marks are then missing. Pure.

The template's own text needn't be stored for that, as it writes it again: of the ids between two turns their number
and a digest are enough. A conversation has tens of thousands of ids at each of its turns. They are in arrays, which are
compared and copied without a look at each id.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from service.harmony import tokens

Ids: TypeAlias = "array[int]"

DIGEST_BYTES = 16


class Sampled(msgspec.Struct, frozen=True):
    """The `ids` of a turn as a model sampled them, behind a `gap` of so many others: those behind the turn before, or
    from the prompt's beginning. `digest` is the gap's, under `key`.
    """

    gap: int
    digest: bytes
    ids: Ids
    key: bytes = b""


class KnownTurns(msgspec.Struct, frozen=True):
    """The turns that a model has sampled of a conversation, the oldest first. `key` is for the turn behind them."""

    turns: tuple[Sampled, ...] = ()
    key: bytes = b""

    @property
    def length(self) -> int:
        """How many ids the model had by the end of the last of them."""
        return sum([turn.gap + len(turn.ids) for turn in self.turns])


NOTHING = KnownTurns()


class Templated(msgspec.Struct, frozen=True):
    """The ids of a prompt that a template made, and the places in them where turns as they were sampled begin and end.

    `kept` is how many of its first ids are known to be those of the prompt before.
    """

    ids: Ids
    turns: tuple[tuple[int, int], ...] = ()
    kept: int = 0

    def with_turn(self, sampled: Ids) -> "Templated":
        """The prompt, and a turn behind it."""
        begin = len(self.ids)
        turns = (*self.turns, (begin, begin + len(sampled))) if sampled else self.turns
        return Templated(self.ids + sampled, turns)

    def sampled_turns(self, key: bytes, behind: int = 0) -> tuple[Sampled, ...]:
        """Its turns from the place `behind` on, which is its beginning or the end of one of them."""
        turns: list[Sampled] = []
        for begin, end in self.turns:
            if begin >= behind:
                gap = digest_of(self.ids[behind:begin], key)
                turns.append(Sampled(begin - behind, gap, self.ids[begin:end], key))
                behind = end
        return tuple(turns)


def digest_of(ids: Ids, key: bytes) -> bytes:
    """A digest that tells some ids from others, for holders of the key. 100,000 ids take 1 ms."""
    return blake2b(tokens.pack(ids), digest_size=DIGEST_BYTES, key=key).digest()


def key_behind(key: bytes, salt: bytes) -> bytes:
    """The key behind a note with this salt: without any of the salts before it, nobody can make it."""
    return blake2b(salt, digest_size=DIGEST_BYTES, key=key).digest()


def with_known(written: Ids, known: KnownTurns, ends: Collection[int], marks: Collection[int]) -> Templated:
    """A prompt as the template has `written` it, but with its turns as they were sampled where that says the same.

    A turn goes up to one of `ends`; `marks` are the other ids that are marks. One that was broken off stands as the
    template writes it. Behind the first turn that is written otherwise, all is as written.
    """
    made = array("I")
    turns: list[tuple[int, int]] = []
    at = kept = 0
    for turn in known.turns:
        start = at + turn.gap
        if digest_of(written[at:start], turn.key) != turn.digest:
            break
        kept += turn.gap
        behind = _end_of(turn.ids, written, start, ends, marks)
        if behind is None:
            kept += common(turn.ids, written[start:])
            break
        made += written[at:start]
        turns.append((len(made), len(made) + len(turn.ids)))
        made += turn.ids
        at, kept = behind, len(made)
    return Templated(made + written[at:], tuple(turns), kept)


def _end_of(sampled: Ids, written: Ids, start: int, ends: Collection[int], marks: Collection[int]) -> int | None:
    """The end of the turn that is written from `start` on, if it gives the sampled text; None if it doesn't."""
    if not sampled or sampled[-1] not in ends:
        return None
    behind = start + len(sampled)
    if written[start:behind] == sampled:
        return behind
    stop = next((each for each in range(start, len(written)) if written[each] in ends), None)
    if stop is None or _marks(sampled, marks) != _marks(written[start:stop], marks):
        return None
    return stop + 1


def _marks(ids: Ids, marks: Collection[int]) -> Counter[int]:
    return Counter([id for id in ids if id in marks])


def common(one: Ids, other: Ids) -> int:
    """How many ids two arrays begin with in common."""
    most = range(min(len(one), len(other)))  # slices compare far faster than items do
    return bisect_left(most, True, key=lambda place: one[: place + 1] != other[: place + 1])
