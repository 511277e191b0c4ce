"""Trees: a key's own, a page at a time, and the turns of one; and its background responses that wait or run.

A page has all trees, or those whose newest turn is as was asked for, looked for within bounds. Only the last use of
trees is in an order, so `since` and `until` cost nothing, and all else is looked at tree by tree. A page ends where
that took too long, and says so. Never go on to the end for one that matches: a tenant may have a million.
"""

import asyncio
import re
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated, ClassVar, Literal

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.api.ids import response_of
from service.errors import invalid_value
from service.web.console.shapes import (
    US,
    Archived,
    Excerpt,
    Searched,
    ShownTree,
    ShownTurn,
    TreePage,
    WholeTree,
    excerpt_of,
    shown_tree,
    shown_turn,
    with_excerpt,
)
from service.web.errors import JsonResponse
from service.web.plain import FILTER, PlainRouter, Query
from service.web.routes.conversation_list import read_filter
from service.web.routes.included import MAX_PAGE_ITEMS
from service.web.routes.received import exchange_of, service_of
from service.web.routes.stored import with_room
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits, Tree, TreeListing, by_shard
from store.history.tree_turns import TreeTurns, UnderWay, away_from, shown_of, turns_of, under_way
from store.keys import HEX_DIGITS, digits_of, name_of

_CURSOR = re.compile(rf"([0-9]{{1,16}})-([0-9a-f]{{{HEX_DIGITS}}})", re.ASCII)

LAST_DIGITS = "f" * HEX_DIGITS
"""The last of all digits."""


@dataclass(frozen=True)
class Box:
    """The most that one page looks at."""

    trees: int = 2_000
    seconds: float = 0.5
    bytes: int = 16 << 20
    at_once: int = 25


@dataclass(frozen=True)
class Wanted:
    """The filters of a tree and its newest turn. Times are in seconds since 1970."""

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


def read_cursor(after: str) -> ScoredDigits:
    """The place that a page ended at. Raises InvalidRequest."""
    match = _CURSOR.fullmatch(after)
    if match is None:
        raise invalid_value("after", after, "Give the 'after' of the page before.")
    return ScoredDigits(int(match[1]), match[2])


def cursor_of(place: ScoredDigits) -> str:
    """A place as it is written in a page."""
    return f"{place.score}-{place.digits}"


class Search:
    """The search for one page."""

    def __init__(
        self, history: ConversationHistoryStore, tenant: str, wanted: Wanted, after: ScoredDigits | None, box: Box
    ) -> None:
        """`after` is where the page before ended."""
        self._history, self._tenant, self._wanted, self._box = history, tenant, wanted, box
        if wanted.until is not None:
            newest = ScoredDigits(wanted.until * US, LAST_DIGITS)
            after = newest if after is None else min(after, newest)
        self._listing = TreeListing(history, tenant, after=after)
        self._until = monotonic() + box.seconds
        self._looked_at = self._size = self._unread = 0
        self._last: ScoredDigits | None = None

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

    def _is_in_time(self, place: ScoredDigits) -> bool:
        return self._wanted.since is None or place.score >= self._wanted.since * US

    def _stopped(self) -> Literal["rows", "time", "bytes"] | None:
        if self._looked_at >= self._box.trees:
            return "rows"
        if self._size >= self._box.bytes:
            return "bytes"
        return "time" if monotonic() >= self._until else None

    async def _read(self, trees: list[Tree]) -> dict[str, Excerpt]:
        """The excerpts of the newest turns of trees, by their ids."""
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


router = PlainRouter()

CUT_AT_ONCE = 50
"""How many excerpts are cut before others have their turn: a millisecond or two."""

MODEL_CHARS = 256

LATEST = 9_999_999_999
"""The last second that can be asked for, in 2286: a use has sixteen digits of microseconds."""

_CALL = re.compile(r"call_([0-9a-f]{48})[0-9a-f]{4}")

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Moment = Annotated[int, Field(ge=0, le=LATEST)]


class TreesQuery(Query):
    """The query for a page of trees; `metadata` is read beside it."""

    also: ClassVar[frozenset[str]] = frozenset({FILTER})

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    after: str | None = None
    status: Status | None = None
    model: Annotated[str, Field(max_length=MODEL_CHARS)] | None = None
    since: Moment | None = None
    until: Moment | None = None


@router.route("GET", "/console/api/trees", query=TreesQuery)
async def list_trees(request: Request, query: TreesQuery) -> HttpResponse:
    """Trees, the one used last first; all, or those whose newest turn is as is asked for."""
    filters = read_filter(request.query_params.multi_items())
    wanted = Wanted(query.status, query.model, query.since, query.until, filters)
    place = None if query.after is None else read_cursor(query.after)
    service = service_of(request)
    search = Search(service.store, exchange_of(request).tenant, wanted, place, Box())
    page = msgspec.structs.replace(await search.page(query.limit), has_archive=service.archive is not None)
    return with_room(request, JsonResponse(page))


@router.route("GET", "/console/api/trees/{id}")
async def retrieve_tree(request: Request, id: str) -> HttpResponse:
    """The tree that has a response, an item, a call or a conversation, with all its turns."""
    store, tenant = service_of(request).store, exchange_of(request).tenant
    asked = named(id)
    tree = await turns_of(store, tenant, asked)
    excerpts = await excerpts_of(store, tenant, tree)
    readable = [node for node in tree.nodes if node.size and not node.is_conversation]
    answer = WholeTree(
        id=tree.id,
        asked=asked,
        last_used_at=tree.used // US,
        turns=[shown_turn(node, excerpts.get(node.digits)) for node in tree.nodes],
        turns_complete=tree.whole,
        excerpts_complete=len(excerpts) >= len(readable),
        archived=await archived_of(store, tenant, tree),
    )
    return with_room(request, JsonResponse(answer))


async def archived_of(store: ConversationHistoryStore, tenant: str, tree: TreeTurns) -> Archived | None:
    """The turns of a tree that are only in the archive; None where it can't be read, as the rest can still be shown.

    Raises StoreUnavailable.
    """
    try:
        away = await away_from(store, tenant, tree)
    except (ArchiveUnavailable, ArchiveDamaged, NewerFormat):
        return None
    return Archived([name_of(end) for end in away.ends], away.whole)


def named(id: str) -> str:
    """The id of what an id is within: that of a response, for an item or a call of it."""
    call = _CALL.fullmatch(id)
    return f"resp_{call[1]}" if call else response_of(id) or id


async def excerpts_of(store: ConversationHistoryStore, tenant: str, tree: TreeTurns) -> dict[str, Excerpt]:
    """The excerpts of the turns of a tree, by their digits, those used last first. Raises StoreUnavailable."""
    wanted = [node for node in tree.nodes if node.size and not node.is_conversation]
    wanted.sort(key=lambda node: -node.used)
    found: dict[str, Excerpt] = {}
    async for digits, response, items in shown_of(store, tenant, {node.digits: node.size for node in wanted}):
        found[digits] = excerpt_of(response, items)
        if len(found) % CUT_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


MOST_JOBS = 500
"""The most that are listed at once: some 10 ms."""


class Jobs(msgspec.Struct):
    """The responses under way, the newest first; `has_more` where there are more than were asked for."""

    data: list[ShownTurn]
    has_more: bool
    object: str = "list"


class JobsQuery(Query):
    """How many are wanted."""

    limit: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 100


@router.route("GET", "/console/api/jobs", query=JobsQuery)
async def list_jobs(request: Request, query: JobsQuery) -> HttpResponse:
    """Background responses that wait or run, the newest first."""
    store, tenant = service_of(request).store, exchange_of(request).tenant
    found, whole = await under_way(store, tenant, query.limit)
    excerpts: dict[str, Excerpt] = {}
    sizes = {each.digits: each.size for each in found}
    for digits in by_shard(sizes):
        async for each, response, items in shown_of(store, tenant, {each: sizes[each] for each in digits}):
            excerpts[each] = excerpt_of(response, items)
    data = [with_excerpt(_shown(each), excerpts.get(each.digits)) for each in found]
    return with_room(request, JsonResponse(Jobs(data, not whole)))


def _shown(job: UnderWay) -> ShownTurn:
    above = None if job.parent is None else name_of(job.parent)
    return ShownTurn(job.id, "response", job.status, job.created // US, parent=above)
