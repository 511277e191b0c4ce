"""The ids of a prompt that a chat template makes: beginning, wherever it can, with those that the engine has read.

A template writes the whole conversation anew each time. What it writes for an answer needn't be what was sampled: a
text can be cut into ids in several ways, and a call be written with other blanks. The engine's prefix cache knows the
ids that it read and sampled, so these stand where the template says the same. Templates that leave something out later,
such as reasoning, break the prefix there, as their models expect: their marks are then missing. Pure.

A conversation has tens of thousands of ids at each of its turns. They are in arrays, which are compared and copied
without a look at each id.
"""

from array import array
from collections import Counter
from collections.abc import Collection
from typing import TypeAlias

import msgspec

Ids: TypeAlias = "array[int]"


class Known(msgspec.Struct, frozen=True):
    """Ids that a model has read or sampled; `turns` are the places where what it sampled begins and ends."""

    ids: Ids
    turns: tuple[tuple[int, int], ...] = ()


NOTHING = Known(array("I"))


def with_known(written: Ids, known: Known, ends: Collection[int], marks: Collection[int]) -> Known:
    """A prompt as the template has `written` it, but with its turns as they were sampled where that says the same.

    A turn goes up to one of `ends`; `marks` are the other ids that are marks. One that was broken off stands as the
    template writes it. Behind the first turn that is written otherwise, all is as written.
    """
    ids, made = known.ids, array("I")
    turns: list[tuple[int, int]] = []
    at = place = 0
    for begin, end in known.turns:
        start, sampled = at + begin - place, ids[begin:end]
        if written[at:start] != ids[place:begin] or not sampled or sampled[-1] not in ends:
            break
        behind = start + len(sampled)
        if written[start:behind] != sampled:
            stop = next((each for each in range(start, len(written)) if written[each] in ends), None)
            if stop is None or _marks(sampled, marks) != _marks(written[start:stop], marks):
                break
            behind = stop + 1
        made += written[at:start]
        turns.append((len(made), len(made) + len(sampled)))
        made += sampled
        at, place = behind, end
    return Known(made + written[at:], tuple(turns))


def _marks(ids: Ids, marks: Collection[int]) -> Counter[int]:
    return Counter([id for id in ids if id in marks])


def common(one: Ids, other: Ids) -> int:
    """How many ids two arrays begin with in common."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    low, high = 0, most
    while low < high:  # slices compare far faster than items do
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
