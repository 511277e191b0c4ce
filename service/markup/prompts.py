"""The ids of a prompt that a chat template makes: beginning, wherever it can, with those that the engine has read.

A template writes the whole conversation anew each time. What it writes for an answer needn't be what was sampled: a
text can be cut into ids in several ways, and a call be written with other blanks. The engine's prefix cache knows the
ids that it read and sampled, so these stand where the template says the same. Templates that leave something out later,
such as reasoning, break the prefix there, as their models expect: their marks are then missing. Pure.
"""

from collections import Counter
from collections.abc import Collection, Sequence


def with_known(
    ids: Sequence[int], known: Sequence[int], read: int, ends: Collection[int], marks: Collection[int]
) -> list[int]:
    """The ids of a prompt, in which the last turn stands as it was sampled, if the template has written the same.

    `ids` are what the template wrote. `known` are the ids of the last prompt, `read` of them, and of the turn that was
    sampled behind it, up to one of `ends`; `marks` are the other ids that are marks. A turn that was broken off stands
    as the template writes it.
    """
    ids, known = list(ids), list(known)
    shared = common(known, ids)
    if shared == len(known) or shared < read or known[-1] not in ends:
        return ids
    end = next((place for place in range(read, len(ids)) if ids[place] in ends), len(ids))
    if Counter(id for id in known[read:] if id in marks) != Counter(id for id in ids[read:end] if id in marks):
        return ids
    return [*known, *ids[end + 1 :]]


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two lists begin with in common."""
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
