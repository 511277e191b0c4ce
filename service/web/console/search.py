"""A page of trees: all, or those whose newest turn is as was asked for, looked for within bounds.

Only the last use of trees is in an order, so `since` and `until` cost nothing, and all else is looked at tree by tree.
A page ends where that took too long, and says so. Never go on to the end for one that matches: a tenant may have a
million.
"""

import asyncio
import re
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

from service.errors import invalid_value
from service.web.console.shapes import US, Excerpt, Searched, ShownTree, TreePage, excerpt_of, shown_tree
from store.history.history import ConversationHistoryStore
from store.history.listing import by_shard
from store.history.merging import Place
from store.history.tree_listing import Tree, TreeListing
from store.history.tree_turns import shown_of
from store.keys import HEX_DIGITS, digits_of

_CURSOR = re.compile(rf"([0-9]{{1,16}})-([0-9a-f]{{{HEX_DIGITS}}})", re.ASCII)

LAST_DIGITS = "f" * HEX_DIGITS
"""Behind all digits that there can be."""


@dataclass(frozen=True)
class Box:
    """The most that one page looks at."""

    trees: int = 2_000
    seconds: float = 0.5
    bytes: int = 16 << 20
    at_once: int = 25


@dataclass(frozen=True)
class Wanted:
    """What a tree and its newest turn must be. Times are in seconds since 1970."""

    status: str | None = None
    model: str | None = None
    since: int | None = None
    until: int | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def needs_reading(self) -> bool:
        """Whether a tree must be read to know."""
        return self.model is not None or bool(self.metadata)

    def takes(self, tree: Tree, excerpt: Excerpt | None) -> bool:
        """Whether a tree is wanted; one that wasn't read is not, if that is needed to know."""
        if self.status is not None and tree.status != self.status:
            return False
        if not self.needs_reading:
            return True
        return (
            excerpt is not None
            and (self.model is None or excerpt.model == self.model)
            and self.metadata.items() <= excerpt.metadata.items()
        )


def read_cursor(after: str) -> Place:
    """The place that a page ended at. Raises InvalidRequest."""
    match = _CURSOR.fullmatch(after)
    if match is None:
        raise invalid_value("after", after, "Give the 'after' of the page before.")
    return Place(int(match[1]), match[2])


def cursor_of(place: Place) -> str:
    """A place as it is written in a page."""
    return f"{place.score}-{place.digits}"


class Search:
    """The search for one page."""

    def __init__(
        self, history: ConversationHistoryStore, tenant: str, wanted: Wanted, after: Place | None, box: Box
    ) -> None:
        """`after` is where the page before ended."""
        self._history, self._tenant, self._wanted, self._box = history, tenant, wanted, box
        if wanted.until is not None:
            newest = Place(wanted.until * US, LAST_DIGITS)
            after = newest if after is None else min(after, newest)
        self._listing = TreeListing(history, tenant, after=after)
        self._until = monotonic() + box.seconds
        self._looked_at = self._size = self._unread = 0
        self._last: Place | None = None

    async def page(self, limit: int) -> TreePage:
        """At most `limit` trees. Raises StoreUnavailable."""
        found: list[ShownTree] = []
        while True:
            some = await self._listing.some(min(self._box.at_once, max(1, limit - len(found))))
            trees = [tree for _, tree in some if tree is not None and self._is_in_time(tree.place)]
            excerpts = await self._read(trees)
            for place, tree in some:
                if not self._is_in_time(place):
                    return self._ended(found, more=False)
                self._last = place
                self._looked_at += 1
                if tree is not None and self._wanted.takes(tree, excerpts.get(tree.newest)):
                    found.append(shown_tree(tree, excerpts.get(tree.newest)))
            if not some:
                return self._ended(found, more=False)
            if len(found) >= limit:
                return self._ended(found, more=True)
            if (stopped := self._stopped()) is not None:
                return self._ended(found, more=True, stopped=stopped)
            await asyncio.sleep(0)

    def _is_in_time(self, place: Place) -> bool:
        return self._wanted.since is None or place.score >= self._wanted.since * US

    def _stopped(self) -> Literal["rows", "time", "bytes"] | None:
        if self._looked_at >= self._box.trees:
            return "rows"
        if self._size >= self._box.bytes:
            return "bytes"
        return "time" if monotonic() >= self._until else None

    async def _read(self, trees: list[Tree]) -> dict[str, Excerpt]:
        """What is shown of the newest turns of trees, by their ids."""
        found: dict[str, Excerpt] = {}
        wanted = [tree for tree in trees if self._wanted.status in (None, tree.status)]
        self._size += sum(tree.size for tree in wanted)
        sizes = {digits_of(tree.newest): tree.size for tree in wanted}
        for digits in by_shard(sizes):
            own = {each: sizes[each] for each in digits}
            async for each, response, items in shown_of(self._history, self._tenant, own):
                found[f"resp_{each}"] = excerpt_of(response, items)
        self._unread += sum(tree.size > 0 and tree.newest not in found for tree in wanted)
        return found

    def _ended(
        self, found: list[ShownTree], *, more: bool, stopped: Literal["rows", "time", "bytes"] | None = None
    ) -> TreePage:
        last = self._last
        searched = Searched(self._looked_at, None if last is None else last.score // US, stopped, self._unread)
        return TreePage(found, more, cursor_of(last) if more and last is not None else None, searched)
