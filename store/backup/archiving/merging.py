"""Merging: the archived parts of a tree and the news of it become one account that loses neither. Pure.

An archiver reads the parts of a tree first, then the news, and writes each part only if nobody else has since. So the
news are never older than the parts, and the same news twice change nothing. Deleted stays deleted: a turn that is gone
is never more than a tombstone again, whatever an old server or a late caller says of it.

The index alone says which parts have to change; so each of them is read again, one at a time.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from store import codec
from store.backup.archiving.parts import NOWHERE, PART_BYTES, Index, Part, TurnEntry
from store.backup.records import ErasedMessages, Saved
from store.history.omissions import omissions_of
from store.keys import is_conversation


class News(msgspec.Struct, frozen=True):
    """The news of a tree: turns as they are now, tombstones included; ids of deleted turns, and whether their messages
    were erased; the roots of deleted trees; and the ids of turns that later news will continue.
    """

    turns: Sequence[Saved] = ()
    gone: Mapping[str, bool] = {}
    gone_trees: Sequence[str] = ()
    continued: Collection[str] = ()

    @property
    def takes_away(self) -> bool:
        """Whether something was deleted or erased."""
        return bool(self.gone or self.gone_trees) or any(turn.deleted or turn.erased for turn in self.turns)


class Merge:
    """The merge of news into all the parts of an index. It takes the index over, which afterwards has the entries that
    will be there.
    """

    def __init__(self, index: Index, news: News, part_bytes: int = PART_BYTES) -> None:
        self._index, self._entries = index, index.entries
        self._gone = dict(index.gone)
        self._news: dict[str, Saved] = {}
        self._changed = set(index.doubled)
        for turn in news.turns:
            self._take(turn)
        tombstones = {turn.id: not turn.messages for turn in news.turns if turn.deleted}
        for id, erased in (*tombstones.items(), *news.gone.items()):
            self._gone[id] = erased or self._gone.get(id, False)
        gone_trees = tuple(dict.fromkeys((*index.gone_trees, *news.gone_trees)))
        self._drop(_of_trees(self._entries, gone_trees))
        self._delete()
        self._drop(_unneeded_ids(self._entries, news.continued))
        self._new = self._places(index.filled or [0], part_bytes)
        stored = len(index.filled)
        parts = max(stored, 1, *(number + 1 for number in self._new))
        self._head = Part((), parts, self._gone, gone_trees)
        is_first_new = not stored or self._head != Part((), index.parts, index.gone, index.gone_trees)
        changed = (self._changed | self._new.keys()) - {NOWHERE}
        added = range(stored or 1, parts)
        first = [0] if is_first_new or 0 in changed else []
        self.numbers: Sequence[int] = (*added, *first, *sorted(changed.intersection(range(1, stored))))
        """The parts that may change, in the order in which they have to be written.

        New parts come first, as nobody looks for them before the first part counts them; then the first, which has the
        deletions; then the rest, from which the deleted turns are removed.
        """

    def part(self, number: int, before: Part | None) -> Part:
        """One of these, given its stored value."""
        kept = () if before is None else before.turns
        turns = [self._now(turn) for turn in kept if self._stays(turn.id, number)]
        turns += [self._now(turn) for turn in self._new.get(number, ())]
        return msgspec.structs.replace(self._head, turns=tuple(turns)) if number == 0 else Part(tuple(turns))

    def _take(self, turn: Saved) -> None:
        """Note a turn for the place of its archived form, or for the end; unless that form stays."""
        entry = self._entries.get(turn.id)
        new = TurnEntry.of_saved(turn, NOWHERE if entry is None else entry.number)
        if entry is not None and (is_another(turn.id, new, entry) or outdoes(turn.id, entry, new, self._index)):
            return
        self._entries[turn.id] = new
        self._news[turn.id] = turn
        self._changed.add(new.number)

    def _drop(self, ids: Collection[str]) -> None:
        for id in ids:
            self._changed.add(self._entries.pop(id).number)

    def _delete(self) -> None:
        for id, erased in self._gone.items():
            entry = self._entries.get(id)
            if entry is not None and (not entry.deleted or (erased and entry.messages)):
                self._changed.add(entry.number)
                entry.deleted = True

    def _places(self, filled: Sequence[int], part_bytes: int) -> dict[int, list[Saved]]:
        """The parts for the turns that are in none yet: the last part, or new ones behind it."""
        places: dict[int, list[Saved]] = {}
        number, full = len(filled) - 1, filled[-1]
        for id, turn in self._news.items():
            entry = self._entries.get(id)
            if entry is None or entry.number != NOWHERE:
                continue
            if full >= part_bytes:
                number, full = number + 1, 0
            places.setdefault(number, []).append(turn)
            full += entry.payload
        return places

    def _stays(self, id: str, number: int) -> bool:
        entry = self._entries.get(id)
        return entry is not None and entry.number == number

    def _now(self, turn: Saved) -> Saved:
        turn = self._news.get(turn.id, turn)
        return as_gone(turn, self._gone[turn.id]) if turn.id in self._gone else turn


def is_another(id: str, one: TurnEntry, other: TurnEntry) -> bool:
    """Whether two entries with one id are of two turns. The digest is that of the turn as it was made, whatever it lost
    since; a conversation has that of its first turn.
    """
    return one.digest != other.digest or (one.parent != other.parent and not is_conversation(id))


def outdoes(id: str, one: TurnEntry, other: TurnEntry, index: Index) -> bool:
    """Whether one of two forms of an entry takes the place of the other, where the index has all above them.

    A turn only ever loses content, so the form with less of it is the later one. A conversation moves down its tree and
    changes as it is shown: its later form has more omissions on its way, so that what they say stays; else a longer
    way; else it was used later.
    """
    return _rank(id, one, index) > _rank(id, other, index)


def _rank(id: str, entry: TurnEntry, index: Index) -> tuple[int, ...]:
    if not is_conversation(id):
        return entry.deleted, entry.erased, -entry.payload
    way = (entry.parent and index.path(entry.parent, remains=True)) or ()
    return entry.deleted, len(omissions_of(way)), len(way), entry.used


def as_gone(turn: Saved, erased: bool) -> Saved:
    """A turn that was deleted, as those that continue it need it."""
    if erased and turn.messages:
        size = len(codec.encode_messages(turn.messages))
        lost = turn.erased or ErasedMessages(len(turn.messages), size)
        turn = msgspec.structs.replace(turn, messages=(), erased=lost, pictures=())
    return turn if turn.deleted else msgspec.structs.replace(turn, response=None, items=None, said=b"")


def as_of(turn: Saved, erased: int) -> Saved:
    """A turn of a tenant of which all was erased until then, in µs since 1970, as those that continue it need it."""
    return turn if turn.created > erased else as_gone(turn, True)


def _of_trees(entries: Mapping[str, TurnEntry], roots: Collection[str]) -> list[str]:
    """All turns that lead up to one of these roots, or to a missing turn: a deletion that was broken off between two
    parts leaves such turns.
    """
    if not roots:
        return []
    doomed = dict.fromkeys(roots, True)
    for id in entries:
        way, at = [id], id
        while at not in doomed and (entry := entries.get(at)) and entry.parent and len(way) <= len(entries):
            at = entry.parent
            way.append(at)
        doomed.update(dict.fromkeys(way, doomed.get(at, at not in entries)))
    return [id for id in entries if doomed[id]]


def _unneeded_ids(entries: Mapping[str, TurnEntry], continued: Collection[str]) -> list[str]:
    """The ids of deleted turns that nothing continues, or will, from the leaves up."""
    children = Counter[str | None](entry.parent for entry in entries.values())
    children.update(continued)
    unneeded = [id for id, entry in entries.items() if entry.deleted and not children[id]]
    for id in unneeded:  # which grows
        parent = entries[id].parent
        children[parent] -= 1
        if parent is not None and parent in entries and entries[parent].deleted and not children[parent]:
            unneeded.append(parent)
    return unneeded
