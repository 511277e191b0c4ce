"""Trees: a key's own, a page at a time, and the turns of one; and its background responses that wait or run.

A page has all trees, or those that are as was asked for, looked for within bounds. Only the last use of trees is in an
order, so `since` and `until` cost nothing, and all else is looked at tree by tree, and for words and metadata turn by
turn. A page ends where that took too long, and says so. Never go on to the end for one that matches: a tenant may have
a million. Never find what was deleted, also where it was from one conversation alone.

Times are in seconds since 1970.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from time import monotonic
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import Response

from service.api.ids import response_of
from service.background.submit import WINDOWS
from service.errors import invalid_value
from service.features.catalogue.excerpts import (
    EXCERPT_CHARS,
    ITEMS,
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
from store.history.history import ConversationHistoryStore
from store.history.listing import SHARDS_AT_ONCE, ScoredDigits, Tree, TreeListing, by_shard
from store.history.tree_turns import TreeNode, TreeTurns, away_from, shown_of, turns_of, under_way
from store.keys import (
    BY_HAND_MARK,
    CONVERSATION_MARK,
    HEX_DIGITS,
    OMISSION_MARK,
    digits_of,
    mark_of,
    name_of,
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
    archive_away: bool = False
    """Whether there may be more in the archive, which can't be asked now."""
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


def shown_turn(node: TreeNode, excerpt: Excerpt | None) -> ShownTurn:
    """A turn in its tree."""
    return with_excerpt(
        ShownTurn(
            node.id,
            kind_of(node.digits),
            "deleted" if node.deleted else node.status,
            node.created // US,
            parent=None if node.parent is None else name_of(node.parent),
            depth=node.depth,
            used_at=node.used // US,
        ),
        None if node.is_conversation else excerpt,
    )


def shown_tree(tree: Tree, excerpts: Mapping[str, Excerpt], found: FoundTurn | None) -> ShownTree:
    """A tree in a list, with the excerpts of its newest turn and of those that it begins with, by their digits."""
    last = digits_of(tree.newest)
    own = with_names({each: excerpts[each] for each in (*tree.opening, last) if each in excerpts})
    excerpt = own.get(last)
    titles = (own[each].input for each in tree.opening if each in own)
    newest = ShownTurn(tree.newest, kind_of(digits_of(tree.newest)), tree.status, tree.created // US)
    return ShownTree(
        id=tree.id,
        title=next(filter(None, titles), None),
        last_used_at=tree.used // US,
        turns=tree.turns - (kind_of(tree.place.digits) == "items"),
        turns_complete=tree.whole,
        under_way=tree.under_way,
        conversation=tree.conversation,
        newest=with_excerpt(newest, excerpt),
        metadata={} if excerpt is None else excerpt.metadata,
        found=found,
    )


def with_excerpt(turn: ShownTurn, excerpt: Excerpt | None) -> ShownTurn:
    """The turn, with what is shown of it where that is known."""
    if excerpt is not None:
        turn.model, turn.input, turn.output = excerpt.model, excerpt.input, excerpt.output
        turn.answers = excerpt.answers
        turn.input_tokens, turn.output_tokens = excerpt.usage.input_tokens, excerpt.usage.output_tokens
    return turn


# --- the search ---


@dataclass(frozen=True)
class Box:
    """The most that one page looks at; of trees whose turns are looked at, so many turns at once, or one tree."""

    trees: int = 2_000
    seconds: float = 0.5
    bytes: int = 16 << 20
    at_once: int = 25
    turns_at_once: int = 250


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
    def is_filter(self) -> bool:
        """Whether more than the last use matters."""
        return self.is_read or self.status is not None or bool(self.begin)


_BEGIN = re.compile(r"(?:[a-z]{2,5}_)?([0-9a-f]{4,52})")


def begin_of(id: str) -> str:
    """The digits with which an id begins that begins so, of a response, an item, a call or a conversation. Raises
    InvalidRequest.
    """
    match = _BEGIN.fullmatch(id)
    if match is None:
        raise invalid_value("id", id, "Give the beginning of an id, with 4 of its hexadecimal digits or more.")
    return match[1][:HEX_DIGITS]


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text, each once, as they are looked for. Raises InvalidRequest for none."""
    words = tuple(dict.fromkeys(text.casefold().split()))
    if not words:
        raise invalid_value("text", text, "Give one word or more.")
    return words


PIECE_CHARS = 1 << 16
"""How much of a text is looked at in one go: a millisecond or less."""

TURN_COST = 1_024
"""A turn takes as long as so many characters more."""

READ_BYTES_A_CHAR = 4
"""To read so many bytes takes as long as to look at a character."""


class Look:
    """Looks for one turn of a tree that is wanted, in any number of trees one after the other."""

    def __init__(self, wanted: TreeFilter) -> None:
        self._wanted = wanted
        self._reach = max(map(len, wanted.words), default=0)
        self._work = 0

    def at(self, response: bytes, items: bytes, omitted: set[str]) -> Generator[None, None, str | None]:
        """The text around the first of the words, where a turn with this response and these input items, both JSON, has
        what is wanted; else None. It adds to `omitted` the item that is gone from here on. Raises msgspec's errors.
        """
        if self._is_long(TURN_COST + (len(response) + len(items)) // READ_BYTES_A_CHAR):
            yield
        wanted, found = self._wanted, msgspec.json.decode(response, type=ReadableResponse)
        if found.omits is not None:
            omitted.add(found.omits)
        if wanted.model not in (None, found.model) or not wanted.metadata.items() <= (found.metadata or {}).items():
            return None
        if wanted.person is not None and wanted.person not in found.people:
            return None
        missing, around = set(wanted.words), ""
        for item in (*ITEMS.decode(items), *found.output) if missing else ():
            for text in texts_of(item, omitted):
                for at in range(0, len(text), PIECE_CHARS):
                    piece = text[at : at + PIECE_CHARS + self._reach]
                    folded = piece.casefold()
                    if here := [word for word in wanted.words if word in missing and word in folded]:
                        around = around or _around(piece, here[0])
                        missing.difference_update(here)
                    if not missing:
                        return around
                    if self._is_long(len(piece)):
                        yield
        return None if missing else ""

    def _is_long(self, chars: int) -> bool:
        """Whether others wait by now, as with so many characters more it was a step."""
        self._work += chars
        if self._work < PIECE_CHARS:
            return False
        self._work = 0
        return True


def _around(text: str, word: str) -> str:
    """The text around the first place of a word."""
    start = max(0, text.lower().find(word) - EXCERPT_CHARS // 3)
    words = " ".join(text[start : start + 8 * EXCERPT_CHARS].split())
    return ("…" if start else "") + words[:EXCERPT_CHARS]


PlacedTree = tuple[ScoredDigits, Tree | None]


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
        self._look = Look(wanted)
        self._until = monotonic() + box.seconds
        self._looked_at = self._size = self._unread = 0
        self.last: ScoredDigits | None = None
        """How far it has come."""
        self.places: dict[str, ScoredDigits] = {}
        """The places of the trees that were found, by their ids."""

    async def page(self, limit: int) -> TreePage:
        """At most `limit` trees. Raises StoreUnavailable."""
        found: list[ShownTree] = []
        while True:
            some = await self._listing.some(min(self._box.at_once, max(1, limit - len(found))))
            within = list(takewhile(lambda each: self._is_in_time(each[0]), some))
            for group in self._groups(within):
                if found and len(found) >= limit:
                    return self._end(found, more=True)
                if self.last is not None and (stopped := self._stop_reason()) is not None:
                    return self._end(found, more=True, stopped=stopped)
                self.last = group[-1][0]
                self._looked_at += len(group)
                found += await self._wanted_of([tree for _, tree in group if tree is not None])
                await asyncio.sleep(0)
            if not some or len(within) < len(some):
                return self._end(found, more=False)

    def _groups(self, places: list[PlacedTree]) -> Iterator[list[PlacedTree]]:
        """Some trees as they are looked at together."""
        group, turns = list[PlacedTree](), 0
        for place in places:
            tree = place[1]
            turns += tree.turns if tree is not None and self._is_deep else 0
            if group and turns > self._box.turns_at_once:
                yield group
                group, turns = [], tree.turns if tree is not None else 0
            group.append(place)
        if group:
            yield group

    @property
    def _is_deep(self) -> bool:
        return self._wanted.is_read or bool(self._wanted.begin)

    def _is_in_time(self, place: ScoredDigits) -> bool:
        return self._wanted.since is None or place.score >= self._wanted.since * US

    def _stop_reason(self) -> StopReason | None:
        if self._looked_at >= self._box.trees:
            return "rows"
        if self._size >= self._box.bytes:
            return "bytes"
        return "time" if monotonic() >= self._until else None

    async def _wanted_of(self, trees: list[Tree]) -> list[ShownTree]:
        """Those of some trees that are wanted."""
        likely = [tree for tree in trees if self._wanted.status in (None, tree.status)]
        found = await self._found_in(likely) if self._is_deep else None
        shown = [tree for tree in likely if found is None or tree.id in found]
        self.places |= {tree.id: tree.place for tree in shown}
        sizes = {digits_of(tree.newest): tree.size for tree in shown}
        wanted = {digits: size for tree in shown for digits, size in tree.opening.items()} | sizes
        self._size += sum(wanted.values())
        read = await excerpts_of(self._history, self._tenant, wanted)
        if found is None:
            self._unread += sum(size > 0 and digits not in read for digits, size in sizes.items())
        return [shown_tree(tree, read, None if found is None else found[tree.id]) for tree in shown]

    async def _found_in(self, trees: list[Tree]) -> dict[str, FoundTurn]:
        """For those of some trees that have a turn that is wanted, by their ids: the newest one, or a deep one."""
        found: dict[str, FoundTurn] = {}
        sizes: dict[str, int] = {}
        owners: dict[str, Tree] = {}
        lacking: set[str] = set()
        for at in range(0, len(trees), SHARDS_AT_ONCE):
            some = trees[at : at + SHARDS_AT_ONCE]
            for tree, turns in zip(some, await asyncio.gather(*map(self._turns_in, some)), strict=True):
                lacking |= set() if turns.whole else {tree.id}
                begun = self._begun_in(tree, turns.nodes)
                if begun and not self._wanted.is_read:
                    found[tree.id] = FoundTurn(begun[0].id)
                for node in begun if self._wanted.is_read else ():
                    sizes[node.digits], owners[node.digits] = node.size, tree
        omitted: dict[str, set[str]] = {tree.id: set() for tree in trees}
        self._size += sum(sizes.values())
        async for digits, response, items in self._payloads(sizes):
            id = owners.pop(digits).id
            if id in found:
                continue
            text = await in_steps(self._look.at(response, items, omitted[id]))
            if text is not None:
                found[id] = FoundTurn(name_of(digits), text)
            if len(found) == len(trees):
                break
        lacking |= {tree.id for digits, tree in owners.items() if sizes[digits]}
        self._unread += len(lacking - found.keys())
        return found

    def _begun_in(self, tree: Tree, nodes: list[TreeNode]) -> list[TreeNode]:
        """Those of a tree's turns that are looked at, the newest first, then the deepest: an item comes behind the turn
        that omits it.
        """
        begin, also = self._wanted.begin, "omission" if self._wanted.is_read else None
        left = (node for node in reversed(nodes) if not node.deleted)
        begun = (node for node in left if node.digits.startswith(begin) or kind_of(node.digits) == also)
        return sorted(begun, key=lambda node: node.digits != digits_of(tree.newest))

    async def _turns_in(self, tree: Tree) -> TreeTurns:
        """The turns of a tree; none where it is gone by now."""
        try:
            return await turns_of(self._history, self._tenant, tree.id)
        except NotFound:
            return TreeTurns(tree.id, tree.used, [], whole=True)

    async def _payloads(self, sizes: dict[str, int]) -> AsyncGenerator[tuple[str, bytes, bytes]]:
        """The responses and the input items of turns with these sizes, as shown_of has them of each shard."""
        for some in by_shard(sizes):
            async for each in shown_of(self._history, self._tenant, {digits: sizes[digits] for digits in some}):
                yield each

    def _end(self, found: list[ShownTree], *, more: bool, stopped: StopReason | None = None) -> TreePage:
        last = self.last
        searched = Searched(self._looked_at, None if last is None else last.score // US, stopped, self._unread)
        return TreePage(found, more, None, searched)


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
        turns=[shown_turn(node, excerpts.get(node.digits)) for node in tree.nodes],
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


def with_names(excerpts: Mapping[str, Excerpt]) -> dict[str, Excerpt]:
    """The excerpts of turns of a tree, with the names of the calls that any of them answers."""
    names = {call: name for each in excerpts.values() for call, name in each.calls.items()}
    return {digits: each.with_names(names) if each.answers else each for digits, each in excerpts.items()}


_WINDOWS: dict[int, str] = {priority: window for window, priority in WINDOWS.items()}

MOST_JOBS = 500
"""The most that are listed at once: some 10 ms."""


class ShownJob(ShownTurn):
    """A response under way, with the window of one that has hours still."""

    completion_window: str | None = None


class ListedJobs(msgspec.Struct):
    """The responses under way, the newest first; `has_more` where there are more than were asked for."""

    data: list[ShownJob]
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
    data = list[ShownJob]()
    for job in found:
        above, window = None if job.parent is None else name_of(job.parent), _WINDOWS.get(job.priority)
        shown = ShownJob(job.id, "response", job.status, job.created // US, parent=above, completion_window=window)
        with_excerpt(shown, excerpts.get(job.digits))
        data.append(shown)
    return request.with_room(ListedJobs(data, not whole))
