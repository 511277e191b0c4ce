"""`POST /v1/responses/input_tokens`: how long a request's prompt is.

The prompt is built as for a response, so it counts and refuses the same. No engine is asked, and nothing is stored.
"""

from typing import Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.api.request import read_count
from service.responses.prepare import known_model
from service.web.routes.asked import begun, body_of, exchange_of, service_of

router = APIRouter()


class InputTokens(msgspec.Struct):
    """The answer."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


@router.post("/responses/input_tokens", summary="Count the tokens of a request")
async def count(request: Request) -> HttpResponse:
    """The tokens of the prompt that a create request would be answered from, its whole conversation included."""
    exchange, service = exchange_of(request), service_of(request)
    body = await body_of(request)
    model = (await known_model(service.engine)).id
    creation = await begun(request, read_count(body, model, store=service.settings.store))
    prompt, _ = await creation.rendered()
    await creation.release()
    exchange.left_out(creation.left_out)
    exchange.facts["input_tokens"] = len(prompt.tokens)
    return exchange.dialect.answer(InputTokens(len(prompt.tokens)))
