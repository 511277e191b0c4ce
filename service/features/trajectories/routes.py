"""Trajectories over HTTP, as JSON Lines: of one conversation, or of all that were used since a cursor.

Trees are listed by their last use, the oldest first. One that is used while somebody reads on is met again, so nothing
is missed, and what was read may come again under its id. Reading doesn't count as use.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from service.api.conversation import decode_conversation
from service.api.ids import response_of
from service.build import this_build
from service.errors import invalid_value
from service.features.trajectories.shapes import FORMS, Facts, Form
from service.features.trajectories.turns import take_turns
from service.responses.service import Service
from service.stability import EXPERIMENTAL
from service.web.entering import Aside
from service.web.errors import on_one_line
from service.web.queries import Query
from store.backup.reading import ShardReader
from store.errors import NotFound
from store.history.listing import Merged, ScoredDigits
from store.history.tree_turns import TreeNode, TreeTurns, shown_of, turns_of
from store.keys import HEX_DIGITS, NO_RESPONSES, digits_of, id_of, mark_of
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


@router.get("/trajectories", summary="Read trajectories", operation_id="listTrajectories", openapi_extra=EXPERIMENTAL)
async def list_trajectories(request: Aside, query: Annotated[TrajectoriesQuery, InQuery()]) -> Response:
    """Conversations for training, a line of JSON each: those with `id`, or a page of trees used since `after`."""
    store, tenant = request.service.store, request.tenant
    headers = dict[str, str]()
    if query.id is not None:
        asked = response_of(query.id) or query.id
        trees = [(await turns_of(store, tenant, asked), asked)]
    else:
        since = _place_of(query.after)
        places = await Merged(store, "trees", tenant, ascending=True, after=since).some(query.limit)
        last = places[-1] if places else since
        headers[AFTER] = FROM_START if last is None else f"{last.score}-{last.digits}"
        trees = [(id_of(place.digits), None) for place in places if place.known]
    request.admitted.slot.take_body(MOST_BYTES // 16)
    lines = _lines(request.service, tenant, trees, query.format)
    return StreamingResponse(lines, media_type="application/octet-stream", headers=headers)


def _place_of(after: str | None) -> ScoredDigits | None:
    """The place that a cursor names. Raises InvalidRequest."""
    if after in (None, FROM_START):
        return None
    match = _PLACE.fullmatch(after)
    if match is None:
        raise invalid_value("after", after, f"Send the header '{AFTER}' of the previous page.")
    return ScoredDigits(int(match[1]), match[2])


async def _lines(
    service: Service, tenant: str, trees: Sequence[tuple[TreeTurns | str, str | None]], form: Form
) -> AsyncGenerator[bytes]:
    """The lines of trees, each with what its trajectories must have."""
    for tree, asked in trees:
        try:
            found = await turns_of(service.store, tenant, tree) if isinstance(tree, str) else tree
        except NotFound:
            continue
        notes = await _notes_in(service, tenant, found)
        for end, shared in ends_of(found, asked):
            async for piece in _trajectory(service, tenant, end, {"tree": found.id, "shared": shared}, notes, form):
                yield piece


def ends_of(tree: TreeTurns, asked: str | None = None) -> Iterator[tuple[TreeNode, Facts]]:
    """The last responses of a tree, of those only that continue the one `asked` for, or the one at which a conversation
    stands, the oldest first; each with what it shares with an older one.
    """
    nodes = {node.digits: node for node in tree.nodes if node.status in TERMINAL}
    responses = [digits for digits in nodes if mark_of(digits) not in NO_RESPONSES]
    ends = set(responses) - {_response_at(nodes, nodes[digits].parent) for digits in responses}
    wanted = None if asked is None else digits_of(asked)
    stands = _response_at(nodes, wanted) if wanted in nodes and wanted not in responses else None
    owners = dict[str, str]()
    for end in sorted(ends | ({stands} if stands else set()), key=lambda each: (nodes[each].created, each)):
        path = list(_path(nodes, end))
        known = [owners[digits] for digits in path if digits in owners]
        shared = {"trajectory": next(iter(known), None), "turns": len(known)}
        owners |= {digits: nodes[end].id for digits in path if digits not in owners}
        if end == stands if stands else wanted is None or wanted in path:
            yield nodes[end], shared


def _path(nodes: Mapping[str, TreeNode], digits: str | None) -> Iterator[str]:
    """A turn and those above it."""
    while digits is not None and digits in nodes:
        yield digits
        digits = nodes[digits].parent


def _response_at(nodes: Mapping[str, TreeNode], digits: str | None) -> str | None:
    """The first response from a turn on upwards."""
    return next((each for each in _path(nodes, digits) if mark_of(each) not in NO_RESPONSES), None)


async def _notes_in(service: Service, tenant: str, tree: TreeTurns) -> dict[str, list[dict[str, str]]]:
    """The metadata of the conversations that stand at the turns of a tree, by the ids of these."""
    nodes, notes = {node.digits: node for node in tree.nodes}, dict[str, list[dict[str, str]]]()
    sizes = {digits: node.size for digits, node in nodes.items() if node.is_conversation}
    async for digits, shown, _ in shown_of(service.store, tenant, sizes):
        metadata, at = decode_conversation(shown).metadata, _response_at(nodes, digits)
        if metadata and at is not None:
            notes.setdefault(nodes[at].id, []).append(metadata)
    return notes


async def _trajectory(
    service: Service, tenant: str, end: TreeNode, facts: Facts, notes: dict[str, list[dict[str, str]]], form: Form
) -> AsyncGenerator[bytes]:
    """The line of a trajectory, in pieces; nothing where it is gone by now. Raises StoreUnavailable."""
    reader = ShardReader(service.store.server, service.store.keyspace.shard(end.digits))
    (nodes,) = await reader.describe([f"{tenant}/{end.digits}"], above=MOST_TURNS)
    sizes = accumulate(node.payload for node in nodes)
    kept = nodes[: max(1, sum(1 for size in sizes if size <= MOST_BYTES))][::-1]
    turns = [turn async for _, turn in reader.turns(tenant, kept) if turn is not None]
    if not turns or len(turns) < len(kept):
        return
    last: Any = msgspec.json.decode(turns[-1].response or b"{}")
    ids, complete = [turn.id for turn in turns], turns[0].parent is None
    facts |= {"id": end.id, "turns": ids, "turns_complete": complete}
    facts["notes"] = {id: notes[id] for id in ids if id in notes}
    pieces = map(on_one_line, FORMS[form](facts, last, this_build().version, take_turns(turns, whole=complete)))
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
    yield b"\n"
