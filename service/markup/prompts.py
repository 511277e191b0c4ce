"""The ids of a prompt that a chat template makes: beginning, wherever it can, with those that the engine has read.

A template writes the whole conversation anew each time. What it writes for an answer needn't be what was sampled: a
text can be cut into ids in several ways, and a call be written with other blanks. The engine's prefix cache knows the
ids that it read and sampled, so these stand where the template says the same. Templates that leave something out later,
such as reasoning, break the prefix there, as their models expect: their marks are then missing. Pure.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec


class Known(msgspec.Struct, frozen=True):
    """Ids that a model has read or sampled; `turns` are the places where what it sampled begins and ends."""

    ids: Sequence[int] = ()
    turns: tuple[tuple[int, int], ...] = ()


NOTHING = Known()


def with_known(written: Sequence[int], known: Known, ends: Collection[int], marks: Collection[int]) -> Known:
    """A prompt as the template has `written` it, but with its turns as they were sampled where that says the same.

    A turn goes up to one of `ends`; `marks` are the other ids that are marks. One that was broken off stands as the
    template writes it. Behind the first turn that is written otherwise, all is as written.
    """
    written, ids = list(written), list(known.ids)
    made: list[int] = []
    turns: list[tuple[int, int]] = []
    at = place = 0
    for begin, end in known.turns:
        start, sampled = at + begin - place, ids[begin:end]
        stop = next((each for each in range(start, len(written)) if written[each] in ends), None)
        if written[at:start] != ids[place:begin] or stop is None or sampled[-1] not in ends:
            break
        if _marks(sampled, marks) != _marks(written[start:stop], marks):
            break
        made += written[at:start]
        turns.append((len(made), len(made) + len(sampled)))
        made += sampled
        at, place = stop + 1, end
    return Known([*made, *written[at:]], tuple(turns))


def _marks(ids: Sequence[int], marks: Collection[int]) -> Counter[int]:
    return Counter(id for id in ids if id in marks)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two lists begin with in common."""
    one, other = list(one), list(other)
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
