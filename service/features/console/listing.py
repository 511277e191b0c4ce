"""Listing: all trees of a key that are kept, as one list: those in memory, and those that the archive alone has.

Each is listed once, by its last use: one that both have is memory's. A place in the list is one in memory's part and
one in the archive's, which are read side by side, so a page passes over few trees that memory has, too.

With a filter memory is searched for what the archive may lack, and the archive finds the rest: also a tree that memory
has without the branch that is wanted.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from time import monotonic
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import Response

from service.errors import invalid_value
from service.features.catalogue.describing import METADATA, MODEL, PERSON, STATUS, summary_in
from service.features.catalogue.excerpts import MARKS
from service.features.console.trees import (
    US,
    Box,
    FoundTurn,
    ShownTree,
    TreeFilter,
    TreePage,
    TreeSearch,
    shown_tree,
)
from service.web.entering import Aside
from service.web.queries import FILTER, PageQuery
from service.web.routes.conversations import read_filter
from store.catalogue.rows import fact_of
from store.errors import ArchiveUnavailable, ArchiveUncatalogued
from store.history import elsewhere
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits
from store.ids import TREE_DIGITS
from store.keys import HEX_DIGITS, SHARD_DIGITS, name_of

TEXT_CHARS = 256
"""The most of a text, or of the name of a model, that is looked for."""

SEARCH_ROOM = 4 << 20
"""The room of a large body, which a search takes: so few run at once, and a tenant has its share of them."""

LATEST = 9_999_999_999
"""The last second that can be asked for, in 2286: a use has sixteen digits of microseconds."""

SKIP_SECONDS = 0.5
MOST_AT_ONCE = 500
"""How long a page passes over trees of the archive that memory has, too, and how many it asks for at once: they are
many where a lot of trees were read and not changed since they were archived.
"""

_UNDER_WAY = ("queued", "in_progress")
_PLACE = re.compile(
    rf"([0-9]{{1,10}})-([0-9]{{1,16}})-([0-9a-f]{{{HEX_DIGITS}}})"
    rf"-([0-9]{{1,19}})-([0-9a-f]{{{SHARD_DIGITS + TREE_DIGITS}}}|~)",
    re.ASCII,
)


P = TypeVar("P")


class ListPlace(NamedTuple):
    """A place in the list: how far memory's part and the archive's were listed, and from which use on memory is looked
    at, in seconds since 1970.
    """

    since: int = 0
    here: ScoredDigits = ScoredDigits(LATEST * US, "f" * HEX_DIGITS)
    kept: tuple[int, str] = elsewhere.FIRST

    def __str__(self) -> str:
        return f"{self.since}-{self.here.score}-{self.here.digits}-{self.kept[0]}-{self.kept[1]}"


def read_place(after: str) -> ListPlace:
    """The place that a page ended at. Raises InvalidRequest."""
    match = _PLACE.fullmatch(after)
    if match is None or int(match[4]) > elsewhere.FIRST[0]:
        raise invalid_value("after", after, "Give the 'after' of the previous page.")
    return ListPlace(int(match[1]), ScoredDigits(int(match[2]), match[3]), (int(match[4]), match[5]))


class KeptTrees:
    """The trees of the archive in a list that memory doesn't list from some time on, `since` as a place has it."""

    def __init__(self, store: ConversationHistoryStore, tenant: str, wanted: TreeFilter, place: ListPlace) -> None:
        self._elsewhere, self._tenant, self._since = store.elsewhere, tenant, place.since * US
        self.last = place.kept
        if wanted.until is not None:
            self.last = min(self.last, (wanted.until * US, "~"))
        filters = ((STATUS, wanted.status), (MODEL, wanted.model), (PERSON, wanted.person))
        facts = [fact_of(kind, value) for kind, value in filters if value is not None]
        facts += [fact_of(METADATA, *pair) for pair in wanted.metadata.items()]
        self._has_branches = wanted.is_read and wanted.status is wanted.until is None
        """Whether a tree that memory has may be wanted for a branch that left it."""
        self._query = elsewhere.KeptQuery(limit=0, since=(wanted.since or 0) * US, facts=facts, words=wanted.words)

    def is_in_memory(self, tree: elsewhere.KeptTree) -> bool:
        """Whether memory is looked at for the tree."""
        return bool(tree.here) and tree.here >= self._since

    async def some(self, limit: int, until: int) -> tuple[list[elsewhere.KeptTree], bool]:
        """The next ones, used since `until`, at most so many; and whether there may be more. `last` is how far it has
        come. Raises StoreUnavailable, ArchiveUnavailable.
        """
        found, skipped, ends = list[elsewhere.KeptTree](), 0, monotonic() + SKIP_SECONDS
        while True:
            most = min(limit - len(found) + 8 + skipped, MOST_AT_ONCE)
            query = self._query._replace(before=self.last, limit=most)
            some = await self._elsewhere.find_kept(self._tenant, query)
            for tree in some:
                if len(found) == limit or tree.used < until:
                    return found, True
                self.last = tree.place
                if tree.gone or (self.is_in_memory(tree) and not self._has_branches):  # memory lists it
                    skipped += 1
                else:
                    found.append(tree)
            if len(some) < query.limit or monotonic() >= ends:
                return found, len(some) == query.limit


async def page_of(
    store: ConversationHistoryStore, tenant: str, wanted: TreeFilter, text: str, after: ListPlace | None, limit: int
) -> TreePage:
    """A page of all trees that are wanted, with the words of `text`, behind a place. Raises StoreUnavailable, and
    ArchiveUnavailable where memory has none left.
    """
    asks = store.elsewhere.lists and not wanted.begin and wanted.status not in _UNDER_WAY
    place = after or ListPlace(int(await store.elsewhere.archived_until()) if asks and wanted.is_filter else 0)
    search = TreeSearch(store, tenant, replace(wanted, since=max(place.since, wanted.since or 0)), place.here, Box())
    page = await search.page(limit)
    spelled = replace(wanted, words=tuple(dict.fromkeys(text.split())))  # an index folds by itself
    archive, found, more = KeptTrees(store, tenant, spelled, place), list[elsewhere.KeptTree](), False
    try:
        if asks:
            found, more = await archive.some(limit, search.last.score if page.has_more and search.last else 0)
            found = [tree for tree in found if not (archive.is_in_memory(tree) and await search.finds(tree))]
            page.unread_shards = () if more else await store.elsewhere.unread_shards()
    except ArchiveUnavailable as error:
        if after and not page.data and not page.has_more:
            raise
        # what is in memory can still be shown
        page.archive_away = "cataloguing" if isinstance(error, ArchiveUncatalogued) else "unavailable"
    here = {tree.id: search.places[tree.id] for tree in page.data}
    left = [tree for tree in found if name_of(tree.root) not in here]  # others left memory just now
    kept = {name_of(tree.root): tree.place for tree in left}
    both = [(here[tree.id].score, tree) for tree in page.data]
    both += [(tree.used, shown_kept(tree, wanted.is_filter)) for tree in left]
    both.sort(key=lambda each: -each[0])
    page.data = [tree for _, tree in both[:limit]]
    page.has_more = page.has_more or more or len(both) > limit
    if page.has_more:
        listed = {tree.id for tree in page.data}
        in_memory = _place_in(here, listed, place.here, search.last or place.here)
        in_archive = _place_in(kept, listed, place.kept, archive.last)
        if len(both) > limit:  # those of memory that come next may have left it by then
            in_archive = min(place.kept, max(in_archive, (both[limit][0], "~")))
        page.after = str(ListPlace(place.since, in_memory, in_archive))
    return page


def _place_in(places: Mapping[str, P], listed: Collection[str], begin: P, end: P) -> P:
    """How far a part was listed that has trees at these places, in their order, and was looked at from `begin` to
    `end`: to its end, unless some of them are not among those `listed`.
    """
    for id, place in places.items():
        if id not in listed:
            return begin
        begin = place
    return end


def shown_kept(tree: elsewhere.KeptTree, filtered: bool) -> ShownTree:
    """A tree of the archive in a list: without words where something of it was deleted a moment ago."""
    summary, text = summary_in(tree.shown), MARKS.sub(r"\1\3", tree.text)
    if tree.changing:
        newest = msgspec.structs.replace(summary.newest, excerpt=None)
        summary, text = msgspec.structs.replace(summary, title=None, newest=newest), ""
    found = FoundTurn(summary.newest.id, text) if filtered else None
    return shown_tree(tree.root, tree.used, summary, found, in_memory=bool(tree.here))


router = APIRouter()

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Moment = Annotated[int, Field(ge=0, le=LATEST)]


class TreesQuery(PageQuery):
    """The query for a page of trees; `metadata` is read beside it."""

    also: ClassVar[frozenset[str]] = frozenset({FILTER})

    status: Status | None = None
    model: Annotated[str, Field(max_length=TEXT_CHARS)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    text: Annotated[str, Field(max_length=TEXT_CHARS, pattern=r"[^\s\x1c-\x1f]")] | None = None
    id: Annotated[str, Field(pattern=r"^([a-z]{2,5}_)?[0-9a-f]{4,52}$")] | None = None
    """The beginning of an id of a response, an item, a call or a conversation."""
    safety_identifier: Annotated[str, Field(min_length=1, max_length=TEXT_CHARS)] | None = None


@router.get("/console/api/trees", include_in_schema=False)
async def list_trees(request: Aside, query: Annotated[TreesQuery, InQuery()]) -> Response:
    """Trees, the one used last first; all that are kept, or those that are as is asked for."""
    wanted = TreeFilter(
        query.status,
        query.since,
        query.until,
        query.model,
        read_filter(request.parameters.multi_items()),
        tuple(dict.fromkeys((query.text or "").casefold().split())),
        (query.id or "").rpartition("_")[2][:HEX_DIGITS],
        query.safety_identifier,
    )
    after, store = read_place(query.after) if query.after else None, request.service.store
    async with request.preparing(SEARCH_ROOM if wanted.is_read else 0):
        page = await page_of(store, request.tenant, wanted, query.text or "", after, query.limit)
    return request.with_room(page)
