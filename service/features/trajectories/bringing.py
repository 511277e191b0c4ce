"""Histories of other products over HTTP: their turns as responses of this service, which made none of them.

A turn's id follows from the history's and its own there, so a second import stores nothing. What a prompt shows of it
is rendered as input is. It was made when it says, and counts as used now.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from msgspec import Meta
from starlette.responses import Response as Answer

from service.api.ids import input_number, output_item_id
from service.api.read import identify
from service.api.response import IncompleteDetails, Item, Response, ResponseStatus
from service.decoding import decode
from service.errors import InvalidRequest
from service.features.trajectories.stories import is_made
from service.responses.edit_conversation import render
from service.responses.refusals import refusal_of
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.received import Received
from store import codec
from store.backup.records import Saved
from store.backup.turns import Brought, bring_in, look_up
from store.errors import NotFound, StoreError
from store.turn import Chain, Status, StoredMessage, Turn

US = 1_000_000
MOST_ITEMS = 2_000
"""The most items of a turn."""

LAST_SECOND = 4_102_444_800
"""Nothing was made after 2099."""

_Name = Annotated[str, Meta(min_length=1, max_length=256)]

router = APIRouter()


class BroughtTurn(msgspec.Struct, frozen=True):
    """A turn: `items` that were given, and what the model made of them, as items of an input both."""

    id: _Name
    parent: _Name | None = None
    created_at: Annotated[float, Meta(ge=0, le=LAST_SECOND)] = 0
    model: _Name = "imported"
    items: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []
    metadata: dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]] = {}


class BroughtHistory(msgspec.Struct, frozen=True):
    """Turns of a history, parents before their children."""

    history: _Name
    turns: Annotated[list[BroughtTurn], Meta(max_length=100)]


class BroughtCounts(msgspec.Struct):
    """The outcomes of turns; of those that were refused, why."""

    imported: int = 0
    kept: int = 0
    deleted: int = 0
    refused: list[str] = []
    object: str = "history.imported"


@router.post("/console/api/histories", include_in_schema=False)
async def import_history(request: Aside) -> Answer:
    """Store turns of a history that was made elsewhere."""
    body, counts = await request.body(), BroughtCounts()
    await request.service.know_ids()
    async with request.preparing(len(body)):
        given = decode(body, BroughtHistory)
        for turn in given.turns:
            try:
                became = await _bring(request, given.history, turn)
            except (InvalidRequest, StoreError) as error:
                refusal = error if isinstance(error, InvalidRequest) else refusal_of(error)
                if refusal.status >= 500:
                    raise
                counts.refused.append(f"{turn.id}: {refusal.message}")
                continue
            counts.imported += became is Brought.NEW
            counts.kept += became is Brought.KEPT
            counts.deleted += became is Brought.DELETED
    return JsonResponse(counts)


async def _bring(request: Received, history: str, given: BroughtTurn) -> Brought:
    """Store a turn, unless it is there. Raises InvalidRequest, StoreError."""
    service, tenant = request.service, request.tenant
    root = service.store.new_id(together=f"{tenant}/{history}", seed=f"{tenant}\n{history}".encode())

    def id_of(name: str) -> str:
        return service.store.new_id(root, seed=f"{tenant}\n{history}\n{name}".encode())

    id, parent = id_of(given.id), None if given.parent is None else id_of(given.parent)
    try:
        await look_up(service.store, tenant, id)
    except NotFound:
        pass
    else:
        return Brought.KEPT
    if parent is None:
        return await _store(request, id, given, Chain())
    pin = service.store.token()
    taking = partial(service.store.chain, tenant, parent, pin=pin)
    async with service.loans.on_loan(taking, partial(service.store.unpin, tenant, parent, pin)) as loan:
        return await _store(request, id, given, loan.taken)


async def _store(request: Received, id: str, given: BroughtTurn, chain: Chain) -> Brought:
    """Store a turn behind a chain. Raises InvalidRequest, StoreError."""
    service, tenant, place = request.service, request.tenant, len(given.items)
    sent = msgspec.Raw(msgspec.json.encode([*given.items, *given.output]))
    caller, tell = request.exchange.caller, request.exchange.left_out
    items, messages, pictures = await render(service, caller, sent, chain, tell, most=MOST_ITEMS)
    first = input_number(place)
    own = tuple(_own(message, first) for message in messages)
    turn = Turn(
        id,
        chain.tip,
        Status.COMPLETED if given.output else Status.INCOMPLETE,
        own,
        msgspec.json.encode(_response(id, given, chain.tip)),
        msgspec.json.encode(identify(items[:place], id)),
        pictures=pictures,
    )
    saved = Saved(
        *(id, turn.status, int(given.created_at * US), 0, 0, codec.digest(turn), own),
        parent=chain.tip,
        response=turn.response,
        items=turn.items,
        pictures=pictures,
    )
    return await bring_in(service.store, tenant, saved)


def _own(message: StoredMessage, first: int) -> StoredMessage:
    """A message by the number of its item in the output, if that is there: the `first` one follows the input."""
    if message.item is None or message.item < first:
        return message
    return msgspec.structs.replace(message, item=message.item - first)


def _response(id: str, given: BroughtTurn, parent: str | None) -> Response:
    """The response of a turn. Raises InvalidRequest."""
    output, at = _output(id, given.output), int(given.created_at)
    return Response(
        id=id,
        created_at=at,
        status=ResponseStatus.COMPLETED if output else ResponseStatus.INCOMPLETE,
        model=given.model,
        instructions=None,
        previous_response_id=parent,
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        max_output_tokens=None,
        max_tool_calls=None,
        temperature=1.0,
        top_p=1.0,
        reasoning={"effort": None, "summary": None},
        text={"format": {"type": "text"}, "verbosity": "medium"},
        metadata=given.metadata,
        store=True,
        safety_identifier=None,
        prompt_cache_key=None,
        output=output,
        incomplete_details=None if output else IncompleteDetails("no_output"),
        completed_at=at if output else None,
    )


def _output(id: str, given: Sequence[dict[str, Any]]) -> list[Item]:
    """Items of an output as responses have them. Raises InvalidRequest."""
    made = list[dict[str, Any]]()
    for place, item in enumerate(given):
        if not is_made(item):
            raise InvalidRequest(
                "An item of 'output' is none that a model makes.", code="invalid_value", param="output"
            )
        whole = {"status": "completed", "phase": "final_answer", **item, "id": output_item_id(id, item["type"], place)}
        if item["type"] == "message":
            whole["content"] = [{"annotations": [], "logprobs": [], **part} for part in item["content"]]
        made.append(whole)
    try:
        return msgspec.convert(made, list[Item])
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Invalid 'output': {error}", code="invalid_value", param="output") from None
