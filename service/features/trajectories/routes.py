"""Trajectories over HTTP, as JSON Lines: of one conversation, or of all that were used since a cursor.

Trees are listed by their last use, the oldest first. One that is used while somebody reads on is met again, so nothing
is missed, and what was read may come again under its id. Reading doesn't count as use.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from service.api.ids import response_of
from service.build import this_build
from service.errors import invalid_value
from service.features.trajectories.shapes import FORMS, Form, SharedTurns, TrajectoryHead
from service.features.trajectories.turns import taken
from service.responses.service import Service
from service.web.entering import Aside
from service.web.queries import Query
from store.backup.reading import Node, ShardReader
from store.backup.records import Saved
from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.history.listing import Merged, ScoredDigits
from store.history.tree_turns import TreeNode, TreeTurns, turns_of
from store.keys import HEX_DIGITS, digits_of, id_of
from store.turn import TERMINAL

MOST_TREES = 100
"""The most trees of a page."""

MOST_BYTES = 64 << 20
"""The most bytes of the turns of one trajectory as they are stored: it has the newest ones."""

MOST_TURNS = 5_000

AFTER = "x-harmonium-after"
"""The header with the cursor of the next page."""

FROM_START = "0"
"""The cursor before all."""

_PLACE = re.compile(rf"([0-9]{{1,16}})-([0-9a-f]{{{HEX_DIGITS}}})", re.ASCII)

router = APIRouter(prefix="/v1", tags=["Trajectories"])


class TrajectoriesQuery(Query):
    """The query for trajectories: those of a response's or a conversation's tree that have it, or a page of all."""

    id: str | None = None
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=MOST_TREES)] = 20
    format: Form = "atif"


@router.get("/trajectories", summary="Read trajectories", operation_id="listTrajectories")
async def list_trajectories(request: Aside, query: Annotated[TrajectoriesQuery, InQuery()]) -> Response:
    """Conversations as trainers want them, a line of JSON each: of `id`, or of a page of trees used since `after`."""
    store, tenant = request.service.store, request.tenant
    headers = dict[str, str]()
    if query.id is not None:
        asked = response_of(query.id) or query.id
        trees = [(await turns_of(store, tenant, asked), asked, 0)]
    else:
        since = _place_of(query.after)
        places = await Merged(store, "trees", tenant, ascending=True, after=since).some(query.limit)
        last = places[-1] if places else since
        headers[AFTER] = FROM_START if last is None else f"{last.score}-{last.digits}"
        trees = [(id_of(place.digits), None, 0 if since is None else since.score) for place in places if place.known]
    request.admitted.slot.take_body(MOST_BYTES // 16)
    lines = _lines(request.service, tenant, trees, query.format)
    return StreamingResponse(lines, media_type="application/jsonl", headers=headers)


def _place_of(after: str | None) -> ScoredDigits | None:
    """The place that a cursor names. Raises InvalidRequest."""
    if after in (None, FROM_START):
        return None
    match = _PLACE.fullmatch(after)
    if match is None:
        raise invalid_value("after", after, f"Give the header '{AFTER}' of the page before.")
    return ScoredDigits(int(match[1]), match[2])


async def _lines(
    service: Service, tenant: str, trees: Sequence[tuple[TreeTurns | str, str | None, int]], form: Form
) -> AsyncGenerator[bytes]:
    """The lines of trees, each with what its trajectories must have, and since when they were used."""
    for tree, asked, since in trees:
        try:
            found = await turns_of(service.store, tenant, tree) if isinstance(tree, str) else tree
        except NotFound:
            continue
        for leaf, shared in leaves_of(found, asked):
            if leaf.used > since:
                async for piece in trajectory(service.store, tenant, found, leaf, shared, form):
                    yield piece


def leaves_of(tree: TreeTurns, asked: str | None = None) -> Iterator[tuple[TreeNode, SharedTurns | None]]:
    """The last turns of a tree that have ended, of those only that have the turn `asked` for, the oldest first; each
    with what it shares with an older one.
    """
    nodes = {node.digits: node for node in tree.nodes if not node.is_conversation and node.status in TERMINAL}
    continued = {node.parent for node in nodes.values()}
    at = None if asked is None else digits_of(asked)
    owners = dict[str, str]()
    stands = {node.digits: node.parent for node in tree.nodes if node.is_conversation}
    for leaf in sorted(nodes.values(), key=lambda node: (node.created, node.digits)):
        if leaf.digits in continued and leaf.digits != stands.get(at or ""):
            continue
        path = list(_path(nodes, leaf.digits))
        known = [digits for digits in path if digits in owners]
        shared = SharedTurns(owners[known[0]], len(known)) if known else None
        owners |= {digits: leaf.id for digits in path if digits not in owners}
        if at is None or at in path or stands.get(at) == leaf.digits:
            yield leaf, shared


def _path(nodes: dict[str, TreeNode], digits: str | None) -> Iterator[str]:
    """A turn and those above it."""
    while digits is not None and digits in nodes:
        yield digits
        digits = nodes[digits].parent


async def trajectory(
    store: ConversationHistoryStore,
    tenant: str,
    tree: TreeTurns,
    leaf: TreeNode,
    shared: SharedTurns | None,
    form: Form,
) -> AsyncGenerator[bytes]:
    """The line of a trajectory, in pieces; nothing where it is gone by now. Raises StoreUnavailable."""
    reader = ShardReader(store.server, store.keyspace.shard(leaf.digits))
    (nodes,) = await reader.describe([f"{tenant}/{leaf.digits}"], above=MOST_TURNS)
    kept, size = list[Node](), 0
    for node in nodes:
        size += node.payload
        if kept and size > MOST_BYTES:
            break
        kept.insert(0, node)
    turns = list[Saved]()
    async for _, turn in reader.turns(tenant, kept):
        if turn is None:
            return
        turns.append(turn)
    if not turns or not any(turn.items != b"[]" or turn.response for turn in turns):
        return
    last = next((turn.response for turn in reversed(turns) if turn.response and b'"output"' in turn.response), b"{}")
    complete = len(kept) == len(nodes) and kept[0].parent is None
    head = TrajectoryHead(
        *(leaf.id, tree.id, [turn.id for turn in turns], last, this_build().version),
        shared=shared,
        complete=complete,
    )
    pieces = FORMS[form](head, taken(turns, whole=complete))
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
    yield b"\n"
