"""Merging: what an archive has of a tree, and what is news of it, as one account that loses neither. Pure.

Whoever archives a tree reads its parts first, then the news, and writes each part only if nobody else has since. So
what is merged here is never older than what it is merged into, and the same news twice change nothing. Deleted stays
deleted: a turn that is gone is never more than a tombstone again, whatever an old server or a late caller says of it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from store import codec
from store.backup.archiving.parts import PART_BYTES, Part
from store.backup.records import Erased, Saved

Parts = Sequence[Part]


class News(msgspec.Struct, frozen=True):
    """What is new of a tree: turns as they are now, tombstones included; ids of those that were deleted, and whether
    their messages were erased; the roots of trees that were deleted; and those of older trees whose turns lead here.
    """

    turns: Sequence[Saved] = ()
    gone: Mapping[str, bool] = {}
    gone_trees: Sequence[str] = ()
    elsewhere: Sequence[str] = ()


def merged(parts: Parts, news: News, part_bytes: int = PART_BYTES) -> dict[int, Part]:
    """The parts that change, by their numbers, in the order in which they have to be written.

    New parts come first, as nobody looks for them before the first part counts them; then the first, which says what is
    gone; then the rest, from which it is taken away.
    """
    before = list(parts) or [Part()]
    gone = dict(before[0].gone)
    tombstones = {turn.id: not turn.messages for turn in news.turns if turn.deleted}
    for id, erased in (*tombstones.items(), *news.gone.items()):
        gone[id] = erased or gone.get(id, False)
    after = [list(part.turns) for part in before]
    _without_doubles(after)
    _add(after, news.turns, part_bytes)
    gone_trees = tuple(dict.fromkeys((*before[0].gone_trees, *news.gone_trees)))
    _without_trees(after, gone_trees)
    for turns in after:
        turns[:] = [_as_gone(turn, gone[turn.id]) if turn.id in gone else turn for turn in turns]
    _without_unneeded(after)
    elsewhere = tuple(dict.fromkeys((*before[0].elsewhere, *news.elsewhere)))
    first = Part(tuple(after[0]), len(after), gone, gone_trees, elsewhere)
    whole = [first, *(Part(tuple(turns)) for turns in after[1:])]
    added = range(len(parts) or 1, len(whole))
    rest = [number for number in range(1, len(before)) if whole[number] != before[number]]
    first_changes = [0] if not parts or first != before[0] else []
    return {number: whole[number] for number in (*added, *first_changes, *rest)}


def found(parts: Parts, id: str) -> Saved | None:
    """A turn that is there and not deleted."""
    if not parts or id in parts[0].gone:
        return None
    turn = _all(parts).get(id)
    return None if turn is None or turn.deleted else turn


def path(parts: Parts, id: str) -> list[Saved] | None:
    """The turns from a root to one that is there and not deleted, those deleted included; None where there is no such
    turn, or one above it is missing.
    """
    if found(parts, id) is None:
        return None
    turns, above = _all(parts), list[Saved]()
    at: str | None = id
    while at is not None and len(above) <= len(turns):
        turn = turns.get(at)
        if turn is None:
            return None
        above.append(_as_gone(turn, parts[0].gone[at]) if at in parts[0].gone else turn)
        at = turn.parent
    return above[::-1]


def missing(parts: Parts, turns: Iterable[Saved]) -> set[str]:
    """The ids of turns that some of these continue, and that are neither archived nor among them: as what is deleted
    is not kept for a turn that nobody knows yet, that has to be read again.
    """
    continued, known = set[str](), set(_all(parts))
    for turn in turns:
        known.add(turn.id)
        if turn.parent is not None:
            continued.add(turn.parent)
    return continued - known


def _all(parts: Parts) -> dict[str, Saved]:
    return {turn.id: turn for part in reversed(parts) for turn in part.turns}


def _without_doubles(parts: list[list[Saved]]) -> None:
    """A part that was written and never counted may have what went into another one since."""
    seen = set[str]()
    for turns in parts:
        turns[:] = [turn for turn in turns if turn.id not in seen]
        seen.update(turn.id for turn in turns)


def _add(parts: list[list[Saved]], news: Iterable[Saved], part_bytes: int) -> None:
    """Put each turn in the place of what is archived of it, or behind all others."""
    places = {turn.id: (number, at) for number, turns in enumerate(parts) for at, turn in enumerate(turns)}
    full = sum(turn.payload for turn in parts[-1])
    for turn in news:
        if turn.id in places:
            number, at = places[turn.id]
            parts[number][at] = _newer(parts[number][at], turn)
            continue
        if full >= part_bytes:
            parts.append([])
            full = 0
        places[turn.id] = (len(parts) - 1, len(parts[-1]))
        parts[-1].append(turn)
        full += turn.payload


def _without_trees(parts: list[list[Saved]], roots: Collection[str]) -> None:
    """Take away all turns that lead up to one of these roots."""
    if not roots:
        return
    parents = {turn.id: turn.parent for turns in parts for turn in turns}
    doomed = dict.fromkeys(roots, True)
    for id in parents:
        way, at = [id], id
        while at not in doomed and (above := parents.get(at)) is not None:
            way.append(above)
            at = above
        doomed.update(dict.fromkeys(way, doomed.get(at, False)))
    for turns in parts:
        turns[:] = [turn for turn in turns if not doomed[turn.id]]


def _newer(archived: Saved, turn: Saved) -> Saved:
    """What is to be archived of a turn: what is known of it now, unless more of it was taken away before."""
    return archived if archived.erased and not turn.erased else turn


def _as_gone(turn: Saved, erased: bool) -> Saved:
    """A turn that was deleted, as those that continue it need it."""
    if erased and turn.messages:
        size = len(codec.encode_messages(turn.messages))
        lost = turn.erased or Erased(len(turn.messages), size)
        turn = msgspec.structs.replace(turn, messages=(), erased=lost)
    return turn if turn.deleted else msgspec.structs.replace(turn, response=None, items=None)


def _without_unneeded(parts: list[list[Saved]]) -> None:
    """Take away what is deleted and what nothing continues, from the leaves up."""
    turns = {turn.id: turn for some in parts for turn in some}
    children = Counter(turn.parent for turn in turns.values())
    unneeded = [id for id, turn in turns.items() if turn.deleted and not children[id]]
    for id in unneeded:  # which grows
        parent = turns.pop(id).parent
        children[parent] -= 1
        if parent in turns and turns[parent].deleted and not children[parent]:
            unneeded.append(parent)
    for some in parts:
        some[:] = [turn for turn in some if turn.id in turns]
