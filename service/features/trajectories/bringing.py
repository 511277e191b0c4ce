"""Histories of other products over HTTP: their turns as responses of this service, which made none of them.

A turn's id follows from the history's and its own there, so a second import stores nothing. What a prompt shows of it
is rendered as input is. It was made when it says, at the latest now, and counts as used now.
"""

from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from msgspec import Meta
from starlette.responses import Response as Answer

from service.api.ids import input_number, output_item_id
from service.api.read import identify
from service.api.response import Response
from service.decoding import decode
from service.errors import ApiError, invalid_value
from service.features.trajectories.stories import Item, is_made
from service.responses.edit_conversation import render
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.received import Received
from store import codec
from store.backup.records import Saved
from store.backup.turns import Brought, bring_in, look_up
from store.errors import NotFound, TenantErased
from store.turn import Chain, Status, Turn

US = 1_000_000
MOST_ITEMS = 2_000
"""The most items of a turn."""

LAST_SECOND = 4_102_444_800
"""Nothing was made after 2099."""

_UNKNOWN: dict[str, Any] = {
    "object": "response", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "temperature": 1.0,
    "top_p": 1.0, "reasoning": {}, "text": {"format": {"type": "text"}}, "store": True, "instructions": None,
    "max_output_tokens": None, "max_tool_calls": None, "safety_identifier": None, "prompt_cache_key": None,
}  # fmt: skip
"""The members of a response that nobody knows of one that was made elsewhere."""

_Name = Annotated[str, Meta(min_length=1, max_length=256)]

router = APIRouter()


class BroughtTurn(msgspec.Struct, frozen=True):
    """A turn of a `history`: the `items` that were given, and those that the model made, in the form of an input."""

    history: _Name
    id: _Name
    parent: _Name | None = None
    created_at: Annotated[float, Meta(ge=0, le=LAST_SECOND)] = 0
    """Zero where nobody knows."""
    model: _Name = "imported"
    items: list[Item] = []
    output: list[Item] = []
    metadata: dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]] = {}


@router.post("/console/api/histories", include_in_schema=False)
async def import_history(request: Aside) -> Answer:
    """Store a turn of a history that was made elsewhere, behind the one that it continues."""
    body, store, tenant = await request.body(), request.service.store, request.tenant
    await request.service.know_ids()
    async with request.preparing(len(body)):
        given = decode(body, BroughtTurn)
        seed = f"{tenant}\n{given.history}"
        root = store.new_id(together=seed, seed=seed.encode())  # all of a history are in the tree that it names
        id, parent = (
            None if name is None else store.new_id(root, seed=f"{seed}\n{name}".encode())
            for name in (given.id, given.parent)
        )
        assert id is not None
        try:
            await look_up(store, tenant, id)
            became = Brought.KEPT
        except NotFound:
            try:
                became = await _store(request, id, parent, given)
            except TenantErased:
                words = "It was made before all of its project was erased, and stays erased."
                raise ApiError(409, words, code="conflict", param="created_at") from None
    return JsonResponse({"id": id, "new": became is Brought.NEW, "deleted": became is Brought.DELETED})


async def _store(request: Received, id: str, parent: str | None, given: BroughtTurn) -> Brought:
    """Store a turn that isn't there; its parent is pinned meanwhile. Raises InvalidRequest, StoreError."""
    service, tenant, pin, chain = request.service, request.tenant, request.service.store.token(), Chain()
    async with AsyncExitStack() as resources:
        if parent is not None:
            taking = partial(service.store.chain, tenant, parent, pin=pin)
            loan = service.loans.on_loan(taking, partial(service.store.unpin, tenant, parent, pin))
            chain = (await resources.enter_async_context(loan)).taken
        sent, place = msgspec.Raw(msgspec.json.encode([*given.items, *given.output])), len(given.items)
        caller, tell = request.exchange.caller, request.exchange.left_out
        items, messages, pictures = await render(service, caller, sent, chain, tell, most=MOST_ITEMS)
        first = input_number(place)
        numbers = (
            (each, each.item if each.item is None or each.item < first else each.item - first) for each in messages
        )
        own = tuple(msgspec.structs.replace(each, item=number) for each, number in numbers)
        response = msgspec.json.encode(_response(id, given, chain.tip))
        listed = msgspec.json.encode(identify(items[:place], id))
        status = Status.COMPLETED if given.output else Status.INCOMPLETE
        digest = codec.digest(Turn(id, chain.tip, status, own, response, listed, pictures=pictures))
        at = min(given.created_at, await service.store.now())  # no erasure would have a turn of the future
        created = max(1, int(at * US))  # a tenant that was never erased was at 0
        saved = Saved(id, status, created, 0, 0, digest, own, chain.tip, response, listed)
        return await bring_in(service.store, tenant, msgspec.structs.replace(saved, pictures=pictures))


def _response(id: str, given: BroughtTurn, parent: str | None) -> Response:
    """The response of a turn. Raises InvalidRequest."""
    output, at, ended = list[Item](), int(given.created_at), bool(given.output)
    if not all(map(is_made, given.output)):
        raise invalid_value("output", [item.get("type") for item in given.output], "A model makes no such item.")
    for place, item in enumerate(given.output):
        whole = {"status": "completed", "phase": "final_answer", **item, "id": output_item_id(id, item["type"], place)}
        if item["type"] == "message":
            whole["content"] = [{"annotations": [], "logprobs": [], **part} for part in item["content"]]
        output.append(whole)
    facts = {"id": id, "created_at": at, "model": given.model, "previous_response_id": parent, "output": output}
    facts |= {"status": "completed", "completed_at": at} if ended else {"status": "incomplete"}
    facts |= {"metadata": given.metadata, "incomplete_details": None if ended else {"reason": "no_output"}}
    try:
        return msgspec.convert(_UNKNOWN | facts, Response)
    except msgspec.ValidationError as error:
        raise invalid_value("output", "an item", f"It can't be read: {error}.") from None
