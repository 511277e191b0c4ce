"""The stored details that a reader asks to see as well: `include` of a GET does what it says, or is refused.

Reasoning is sealed for any reader, as its text is there. Log probabilities, and what code printed, are there only
where the response was made with them. Never changes what is stored.
"""

import asyncio
from collections.abc import Sequence
from typing import get_args

import msgspec

from service.api.items import ReasoningItem
from service.api.outcome import OUTPUTS
from service.api.request import MAX_INCLUDES, Include
from service.api.response import CodeInterpreterCall, Message, Response, decode_response
from service.decoding import ObjectKind
from service.errors import invalid_value, not_served
from service.responses.output.emitter import Seal
from service.responses.output.sealed import REASONING, TooLong, reasoning
from service.web.errors import JsonResponse
from service.web.queries import ListPage, OrderedQuery, Query
from service.web.received import Received

SEALED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"
_MADE_WITHOUT = "The response was created without them; include them when you create one."
INCLUDES: tuple[str, ...] = get_args(Include)

_REASONING = msgspec.json.Decoder(ReasoningItem)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class Including(Query):
    """A query that says what a reader wants to see."""

    include: list[str] | None = None

    @property
    def wanted(self) -> frozenset[str]:
        """The known values of `include`. Raises InvalidRequest for any other."""
        wanted = self.include or ()
        unknown = next((each for each in wanted if each not in INCLUDES), None)
        if unknown is not None or len(wanted) > MAX_INCLUDES:
            value = f"{len(wanted)} values" if unknown is None else unknown
            raise invalid_value("include", value, f"Give some of {', '.join(INCLUDES)}, or leave it out.")
        return frozenset(wanted)


class ItemsQuery(OrderedQuery, Including):
    """The query for a page of items."""


async def show(request: Received, found: Response | bytes, wanted: frozenset[str]) -> Response | bytes:
    """A response, or its JSON, with what is wanted. Raises InvalidRequest, StoreUnavailable."""
    if wanted & {LOGPROBS, OUTPUTS}:
        response = decode_response(found) if isinstance(found, bytes) else found
        answers = [item for item in response.output if isinstance(item, Message) and item.status != "in_progress"]
        if LOGPROBS in wanted and any(part.text and not part.logprobs for item in answers for part in item.content):
            raise not_served("include", LOGPROBS, _MADE_WITHOUT)
        calls = [item for item in response.output if isinstance(item, CodeInterpreterCall) and item.container_id]
        if OUTPUTS in wanted and any(item.outputs is None and item.status != "in_progress" for item in calls):
            raise not_served("include", OUTPUTS, _MADE_WITHOUT)
    if SEALED not in wanted:
        return found
    members = _MEMBERS.decode(found if isinstance(found, bytes) else msgspec.json.encode(found))
    members["output"] = msgspec.Raw(
        msgspec.json.encode(await items_shown(request, _ITEMS.decode(members["output"]), wanted))
    )
    return msgspec.json.encode(members)


async def items_shown(request: Received, items: Sequence[msgspec.Raw], wanted: frozenset[str]) -> Sequence[msgspec.Raw]:
    """Items with what is wanted of them. Raises StoreUnavailable."""
    if SEALED not in wanted:
        return items
    sealer = await request.service.seals.of(request.tenant)
    found: list[msgspec.Raw] = []
    for item in items:
        found.append(_with_seal(item, sealer.seal))
        await asyncio.sleep(0)
    return found


async def answer_page(request: Received, page: ListPage[msgspec.Raw], wanted: frozenset[str]) -> JsonResponse:
    """The answer with a page of items, and what is wanted of them. Raises ApiError 503, StoreUnavailable."""
    page.data = await items_shown(request, page.data, wanted)
    return request.with_room(page)


def _with_seal(raw: msgspec.Raw, seal: Seal) -> msgspec.Raw:
    if msgspec.json.decode(raw, type=ObjectKind).type != "reasoning":
        return raw
    item = _REASONING.decode(raw)
    if item.encrypted_content is not msgspec.UNSET or not item.text or item.status == "in_progress":
        return raw
    try:
        item.encrypted_content = seal(REASONING, reasoning(item.text))
    except TooLong:
        return raw  # its text alone goes on, as where it was made: it is beyond any context of today's models
    return msgspec.Raw(msgspec.json.encode(item))
