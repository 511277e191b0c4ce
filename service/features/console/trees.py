"""Trees: a key's own, a page at a time, and the turns of one; and its background responses that wait or run.

A page has all trees, or those that are as was asked for, looked for within bounds. Only the last use of trees is in an
order, so `since` and `until` cost nothing, and all else is looked at tree by tree, and for words and metadata turn by
turn. A page ends where that took too long, and says so. Never go on to the end for one that matches: a tenant may have
a million. Never find what was deleted, also where it was from one conversation alone.

Times are in seconds since 1970.
"""

import asyncio
import re
from bisect import bisect_left
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import monotonic
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from msgspec import UNSET, UnsetType
from pydantic import Field
from starlette.responses import Response

from service.api.ids import response_of
from service.background.submit import WINDOWS
from service.features.catalogue.describing import KeptNewest, KeptSummary
from service.features.catalogue.excerpts import (
    EXCERPT_CHARS,
    ITEMS,
    MARKS,
    UNNAMED,
    Excerpt,
    GivenAnswer,
    ReadableResponse,
    excerpt_of,
    texts_of,
)
from service.steps import in_steps
from service.web.entering import Aside
from service.web.queries import Query
from store import codec
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat, NotFound
from store.history.elsewhere import KeptTree
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits, Tree, TreeListing, by_shard
from store.history.tree_turns import TreeNode, away_from, shown_of, turns_of, under_way
from store.keys import (
    BY_HAND_MARK,
    CONVERSATION_MARK,
    HEX_DIGITS,
    OMISSION_MARK,
    digits_of,
    mark_of,
    name_of,
    shard_of,
)

US = 1_000_000

Kind = Literal["response", "items", "omission", "conversation"]
"""The kind of a turn: a response; items that somebody added to a conversation, or that it goes on without; or a
conversation that stands at its parent.
"""

_KINDS: dict[str, Kind] = {BY_HAND_MARK: "items", OMISSION_MARK: "omission", CONVERSATION_MARK: "conversation"}


class ShownTurn(msgspec.Struct):
    """A turn. A null field isn't known: the turn was deleted, or is too large to be read among others."""

    id: str
    kind: Kind
    status: str
    created_at: int
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input: str | None = None
    output: str | None = None
    parent: str | None = None
    depth: int | None = None
    used_at: int | None = None
    answers: list[GivenAnswer] = []
    """The answers of its input to an earlier turn: answers to requests for approval, and outputs of calls."""
    completion_window: str | UnsetType = UNSET
    """Of one under way that has hours still."""


class FoundTurn(msgspec.Struct, frozen=True):
    """The turn or conversation of a tree that is as was asked for, with the text around the first of the words."""

    id: str
    text: str = ""


class ShownTree(msgspec.Struct):
    """A tree in a list. `title` is the beginning of what its first turn was asked, null where that can't be read; the
    items that a conversation begins with aren't among its `turns`. `found` is null where no turn was looked for.
    """

    id: str
    title: str | None
    first_used_at: int
    last_used_at: int
    turns: int
    turns_complete: bool
    under_way: int
    conversation: str | None
    newest: ShownTurn
    metadata: dict[str, str]
    found: FoundTurn | None = None
    in_memory: bool = True
    """False where it is in the archive alone, and comes back once it is asked for."""
    object: str = "console.tree"


StopReason = Literal["rows", "time", "bytes"]
ArchiveAway = Literal["unavailable", "cataloguing"]


class Searched(msgspec.Struct):
    """The extent of a page's search: so many trees, back to that use. `stopped` says what ended it where it had neither
    as many as were asked for nor come to the end; `unread` counts those that were too large to read.
    """

    trees: int
    back_to: int | None
    stopped: StopReason | None
    unread: int


class TreePage(msgspec.Struct):
    """A page of a list; `after` is what the next one is asked with, where that is known."""

    data: list[ShownTree]
    has_more: bool
    after: str | None
    searched: Searched
    archive_away: ArchiveAway | None = None
    """The reason why the archive, which may have more, can't be asked now."""
    unread_shards: Sequence[str] = ()
    """At the end of a list, the shards of the archive that can't be read, and may have more."""
    object: str = "list"


class ArchivedBranches(msgspec.Struct):
    """The branches of a tree that are in the archive alone, by the ids of their ends, the newest first: a branch comes
    back where the tree is asked for by its end. Where they are more, `complete` is false.
    """

    ends: list[str]
    complete: bool


class WholeTree(msgspec.Struct):
    """A tree with its turns, parents before their children."""

    id: str
    asked: str
    """The turn or conversation that the id in the path named."""
    last_used_at: int
    turns: list[ShownTurn]
    turns_complete: bool
    excerpts_complete: bool
    archived: ArchivedBranches | None
    """None where the archive doesn't say."""
    object: str = "console.tree"


def kind_of(digits: str) -> Kind:
    """The kind of a turn, by its digits."""
    return _KINDS.get(mark_of(digits), "response")


def shown_tree(
    root: str,
    used: int,
    summary: KeptSummary,
    found: FoundTurn | None,
    *,
    whole: bool = True,
    under_way: int = 0,
    in_memory: bool = True,
) -> ShownTree:
    """A tree in a list, by the digits of its root and its last use in µs since 1970."""
    newest = summary.newest
    return ShownTree(
        id=name_of(root),
        title=summary.title,
        first_used_at=summary.begun // US,
        last_used_at=used // US,
        turns=summary.turns - (kind_of(root) == "items"),
        turns_complete=whole,
        under_way=under_way,
        conversation=summary.conversation and name_of(digits_of(summary.conversation)),
        newest=shown_turn(digits_of(newest.id), newest.status, newest.created, newest.excerpt),
        metadata={} if newest.excerpt is None else newest.excerpt.metadata,
        found=found,
        in_memory=in_memory,
    )


def shown_turn(digits: str, status: str, created: int, excerpt: Excerpt | None, **rest: Any) -> ShownTurn:
    """A turn, with what is shown of it where that is known, and the `rest` of its members; `created` is in µs."""
    turn = ShownTurn(name_of(digits), kind_of(digits), status, created // US, **rest)
    if excerpt is not None:
        turn.model, turn.input, turn.output = excerpt.model, excerpt.input, excerpt.output
        turn.answers = excerpt.answers
        turn.input_tokens, turn.output_tokens = excerpt.usage.input_tokens, excerpt.usage.output_tokens
    return turn


_WINDOWS: dict[int, str] = {priority: window for window, priority in WINDOWS.items()}


def turn_at(node: TreeNode, excerpt: Excerpt | None) -> ShownTurn:
    """A turn in its tree."""
    return shown_turn(
        node.digits,
        "deleted" if node.deleted else node.status,
        node.created,
        None if node.is_conversation else excerpt,
        parent=node.parent and name_of(node.parent),
        depth=node.depth,
        used_at=node.used // US,
        completion_window=_WINDOWS.get(node.priority, UNSET),
    )


# --- the search ---


@dataclass(frozen=True)
class Box:
    """The most that one page looks at; its trees are listed and shown so many at once."""

    trees: int = 2_000
    seconds: float = 0.5
    bytes: int = 16 << 20
    at_once: int = 16


@dataclass(frozen=True)
class TreeFilter:
    """The filters of a tree: `status` of its newest turn; `model`, `metadata`, the `person` by `safety_identifier` or
    `user`, and `words`, which are casefolded, of any one; `begin` of the digits of any. Times are in seconds since
    1970.
    """

    status: str | None = None
    since: int | None = None
    until: int | None = None
    model: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    words: tuple[str, ...] = ()
    begin: str = ""
    person: str | None = None

    @property
    def is_read(self) -> bool:
        """Whether turns are read to know which are wanted."""
        return self.model is not None or bool(self.metadata or self.words or self.person)

    @property
    def is_deep(self) -> bool:
        """Whether the turns of trees are looked at."""
        return self.is_read or bool(self.begin)

    @property
    def is_filter(self) -> bool:
        """Whether more than the last use matters."""
        return self.is_deep or self.status is not None


FEW_TURNS = 10
"""Trees of so many turns are looked at together, one with more alone."""

PIECE_CHARS = 1 << 16
"""How much of a text is looked at in one go: a millisecond or less. Texts are read some at a time, so many short ones
are no stall.
"""


def look_at(wanted: TreeFilter, response: bytes, items: bytes, omitted: set[str]) -> Generator[None, None, str | None]:
    """The text around the first of the words, where a turn with this response and these input items, both JSON, has
    what is wanted; else None. It adds to `omitted` the item that is gone from here on. Raises msgspec's errors.
    """
    found = msgspec.json.decode(response, type=ReadableResponse)
    if found.omits is not None:
        omitted.add(found.omits)
    if wanted.model not in (None, found.model) or not wanted.metadata.items() <= (found.metadata or {}).items():
        return None
    if wanted.person is not None and wanted.person not in found.people:
        return None
    missing, around, reach = set(wanted.words), "", max(map(len, wanted.words), default=0)
    texts = (text for item in (*ITEMS.decode(items), *found.output) for text in texts_of(item, omitted))
    for text in texts if missing else ():
        for at in range(0, len(text), PIECE_CHARS):
            if at:
                yield
            piece = text[at : at + PIECE_CHARS + reach]
            folded = piece.casefold()
            if here := [word for word in wanted.words if word in missing and word in folded]:
                around = around or _around(piece, here[0])
                missing.difference_update(here)
            if not missing:
                return around
    return None if missing else ""


def _around(text: str, word: str) -> str:
    """The text around the first place of a word."""
    found = text.casefold().find(word)
    at = bisect_left(range(len(text)), found, key=lambda end: len(text[:end].casefold()))  # which may be longer
    start = max(0, at - EXCERPT_CHARS // 3)
    words = " ".join(MARKS.sub(r"\1\3", text[start : start + 8 * EXCERPT_CHARS]).split())
    return ("…" if start else "") + words[:EXCERPT_CHARS]


class TreeSearch:
    """The search for one page."""

    def __init__(
        self, history: ConversationHistoryStore, tenant: str, wanted: TreeFilter, after: ScoredDigits | None, box: Box
    ) -> None:
        """`after` is where the page before ended."""
        self._history, self._tenant, self._wanted, self._box = history, tenant, wanted, box
        if wanted.until is not None:
            newest = ScoredDigits(wanted.until * US, "f" * HEX_DIGITS)  # the last of all digits
            after = newest if after is None else min(after, newest)
        self._listing = TreeListing(history, tenant, after=after)
        self._until = monotonic() + box.seconds
        self._looked_at = self._size = self._unread = 0
        self.last: ScoredDigits | None = None
        """How far it has come."""
        self.places: dict[str, ScoredDigits] = {}
        """The places of the trees that were found, by their ids."""

    async def page(self, limit: int) -> TreePage:
        """At most `limit` trees. Raises StoreUnavailable."""
        shown, since, deep = list[ShownTree](), (self._wanted.since or 0) * US, self._wanted.is_deep
        while some := await self._listing.some(min(self._box.at_once, max(1, limit - len(shown)))):
            within = [each for each in some if each[0].score >= since]
            found = list[tuple[Tree, FoundTurn | None]]()
            for _, group in groupby(within, lambda each: each[1] and each[1].turns > FEW_TURNS and each[0]):
                places = list(group)
                stopped = None if self.last is None else self._stop_reason()
                if len(shown) == limit or stopped is not None:
                    return self._end(shown + await self._rows(found), more=True, stopped=stopped)
                self.last, self._looked_at = places[-1][0], self._looked_at + len(places)
                likely = [tree for _, tree in places if tree and self._wanted.status in (None, tree.status)]
                turns = (
                    await asyncio.gather(*(self._found_in(each.id, each.newest) for each in likely))
                    if deep
                    else [None] * len(likely)
                )
                found += [each for each in zip(likely, turns, strict=True) if not deep or each[1] is not None]
            shown += await self._rows(found)
            if len(within) < len(some):
                break
        return self._end(shown, more=False)

    def _stop_reason(self) -> StopReason | None:
        if self._looked_at >= self._box.trees:
            return "rows"
        if self._size >= self._box.bytes:
            return "bytes"
        return "time" if monotonic() >= self._until else None

    async def _rows(self, trees: list[tuple[Tree, FoundTurn | None]]) -> list[ShownTree]:
        """The trees, read together."""
        self.places |= {tree.id: tree.place for tree, _ in trees}
        sizes = {digits_of(tree.newest): tree.size for tree, _ in trees}
        wanted = {digits: size for tree, _ in trees for digits, size in tree.opening.items()} | sizes
        self._size += sum(wanted.values())
        read = await with_callers(self._history, self._tenant, await excerpts_of(self._history, self._tenant, wanted))
        if not self._wanted.is_deep:
            self._unread += sum(size > 0 and digits not in read for digits, size in sizes.items())
        return [_shown_here(tree, read, found) for tree, found in trees]

    async def finds(self, tree: KeptTree) -> bool:
        """Whether memory has the turn for which a tree of the archive is wanted: a page of memory's part has it."""
        return await self._found_in(name_of(tree.root), name_of(tree.newest)) is not None

    async def _found_in(self, id: str, newest: str) -> FoundTurn | None:
        """The turn of a tree that is wanted: the newest one, or a deep one."""
        also = "omission" if self._wanted.is_read else None
        try:
            turns = await turns_of(self._history, self._tenant, id, brings_back=False)
        except NotFound:
            return None  # it is gone by now
        left = [node for node in reversed(turns.nodes) if not node.deleted]  # an item behind the turn that omits it
        begun = [node for node in left if node.digits.startswith(self._wanted.begin) or kind_of(node.digits) == also]
        begun.sort(key=lambda node: node.digits != digits_of(newest))
        if begun and not self._wanted.is_read:
            return FoundTurn(begun[0].id)
        sizes, omitted, read = {node.digits: node.size for node in begun if node.size}, set[str](), 0
        self._size += sum(sizes.values())
        async for digits, response, items in shown_of(self._history, self._tenant, sizes):
            read += 1
            text = await in_steps(look_at(self._wanted, response, items, omitted))
            if text is not None:
                return FoundTurn(name_of(digits), text)
        self._unread += not turns.whole or read < len(sizes)
        return None

    def _end(self, found: list[ShownTree], *, more: bool, stopped: StopReason | None = None) -> TreePage:
        last = self.last
        searched = Searched(self._looked_at, None if last is None else last.score // US, stopped, self._unread)
        return TreePage(found, more, None, searched)


def _shown_here(tree: Tree, excerpts: Mapping[str, Excerpt], found: FoundTurn | None) -> ShownTree:
    """A tree of memory in a list, with the excerpts of its newest turn and of those that it begins with."""
    title = next((excerpts[each].input for each in tree.opening if each in excerpts and excerpts[each].input), None)
    newest = KeptNewest(tree.newest, tree.status, tree.created, excerpts.get(digits_of(tree.newest)))
    summary = KeptSummary(title, tree.begun, tree.turns, tree.conversation, newest)
    return shown_tree(tree.place.digits, tree.used, summary, found, whole=tree.whole, under_way=tree.under_way)


router = APIRouter()

CUT_AT_ONCE = 50
"""How many excerpts are cut before others have their turn: a millisecond or two."""

_CALL = re.compile(r"call_([0-9a-f]{48})[0-9a-f]{4}")


@router.get("/console/api/trees/{id}", include_in_schema=False)
async def retrieve_tree(request: Aside, id: str) -> Response:
    """The tree that has a response, an item, a call or a conversation, with all its turns."""
    store, tenant = request.service.store, request.tenant
    call = _CALL.fullmatch(id)
    asked = f"resp_{call[1]}" if call else response_of(id) or id
    tree = await turns_of(store, tenant, asked)
    readable = [node for node in tree.nodes if node.size and not node.is_conversation]
    readable.sort(key=lambda node: -node.used)
    excerpts = with_names(await excerpts_of(store, tenant, {node.digits: node.size for node in readable}))
    try:
        away = await away_from(store, tenant, tree)
        archived = ArchivedBranches([name_of(end) for end in away.ends], away.whole)
    except (ArchiveUnavailable, ArchiveDamaged, NewerFormat):
        archived = None  # the rest can still be shown
    answer = WholeTree(
        id=tree.id,
        asked=asked,
        last_used_at=tree.used // US,
        turns=[turn_at(node, excerpts.get(node.digits)) for node in tree.nodes],
        turns_complete=tree.whole,
        excerpts_complete=len(excerpts) >= len(readable),
        archived=archived,
    )
    return request.with_room(answer)


async def excerpts_of(store: ConversationHistoryStore, tenant: str, sizes: Mapping[str, int]) -> dict[str, Excerpt]:
    """The excerpts of turns whose responses have these sizes, both by their digits; of each shard the first ones, as
    far as they may be shown. Raises StoreUnavailable.
    """
    found: dict[str, Excerpt] = {}
    for digits in by_shard(sizes):
        async for each, response, items in shown_of(store, tenant, {each: sizes[each] for each in digits}):
            if len(response) + len(items) > codec.THREAD_FROM_BYTES:
                found[each] = await asyncio.to_thread(excerpt_of, response, items)
            else:
                found[each] = excerpt_of(response, items)
            if len(found) % CUT_AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


async def with_callers(
    store: ConversationHistoryStore, tenant: str, excerpts: Mapping[str, Excerpt]
) -> dict[str, Excerpt]:
    """The excerpts of turns, with the names of the calls that they answer, whose ids say which turns made them."""
    answered = [answer.to for each in excerpts.values() for answer in each.answers if answer.name == UNNAMED]
    calls = [match[1] for match in map(_CALL.fullmatch, answered) if match]
    asked = {each for each in calls if shard_of(each) < store.keyspace.shards} - excerpts.keys()
    return with_names({**excerpts, **await excerpts_of(store, tenant, dict.fromkeys(asked, 1))})


def with_names(excerpts: Mapping[str, Excerpt]) -> dict[str, Excerpt]:
    """The excerpts of turns of a tree, with the names of the calls that any of them answers."""
    names = {call: name for each in excerpts.values() for call, name in each.calls.items()}
    return {digits: each.with_names(names) if each.answers else each for digits, each in excerpts.items()}


MOST_JOBS = 500
"""The most that are listed at once: some 10 ms."""


class ListedJobs(msgspec.Struct):
    """The responses under way, the newest first; `has_more` where there are more than were asked for."""

    data: list[ShownTurn]
    has_more: bool
    object: str = "list"


class JobsQuery(Query):
    """How many are wanted."""

    limit: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 100


@router.get("/console/api/jobs", include_in_schema=False)
async def list_jobs(request: Aside, query: Annotated[JobsQuery, InQuery()]) -> Response:
    """Background responses that wait or run, the newest first."""
    store, tenant = request.service.store, request.tenant
    found, whole = await under_way(store, tenant, query.limit)
    excerpts = await excerpts_of(store, tenant, {each.digits: each.size for each in found})
    data = [turn_at(job, excerpts.get(job.digits)) for job in found]
    return request.with_room(ListedJobs(data, not whole))
