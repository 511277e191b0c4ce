"""`POST /v1/chat/completions`, `/v1/messages` and `/v1/messages/count_tokens` where those aren't passed on.

A request is translated, and then one for a response, whose answer has another form.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from starlette.responses import Response

from service.api.request import ChatBody
from service.features.chats.chat import ChatLimits, TranslatedChat, limits_of, read_chat
from service.features.chats.dialects import ChatCompletions, Messages, Translated
from service.features.chats.messages import read_messages
from service.steps import in_steps
from service.web.entering import Aside, Asks
from service.web.errors import JsonResponse
from service.web.queries import MessagesQuery
from service.web.received import Received
from service.web.routes.create import answer_create, count_tokens

router = APIRouter(prefix="/v1", tags=["Chat Completions"])


@router.post("/chat/completions", summary="Create a chat completion", operation_id="createChatCompletion")
async def complete(request: Asks) -> Response:
    """Sample the next message of a conversation. It is stored as any response, unless `store` is false."""
    return await answer_create(request, await _translate(request, read_chat, ChatCompletions), ChatBody)


@router.post("/messages", summary="Create a message", operation_id="createMessage")
async def answer(request: Asks, _: Annotated[MessagesQuery, InQuery()]) -> Response:
    """Sample the next message of a conversation, and store it as any response, unless `store` is false."""
    return await answer_create(request, await _translate(request, read_messages, Messages), ChatBody)


@router.post("/messages/count_tokens", summary="Count the tokens of messages", operation_id="countMessageTokens")
async def count_messages(request: Aside, _: Annotated[MessagesQuery, InQuery()]) -> Response:
    """The number of tokens in the prompt of a message."""
    body = await _translate(request, partial(read_messages, counts=True), Messages)
    return JsonResponse({"input_tokens": await count_tokens(request, body)})


async def _translate(
    request: Received,
    read: Callable[[bytes, ChatLimits], Generator[None, None, TranslatedChat]],
    dialect: type[Translated],
) -> bytes:
    """The body of the create request that one of another API is, whose scope it asks for; from here on it is answered
    in its `dialect`. Nobody else has the body, so that a run doesn't hold it. Raises ApiError, ClientGone.
    """
    request.exchange.entry.require("api.responses.write")
    body = await request.body()
    async with request.preparing(len(body)):
        translated = await in_steps(read(body, limits_of(request.service.settings)))
    request.exchange.dialect = dialect(translated)
    request.exchange.left_out(translated.tools_left_out, translated.left_out)
    return translated.body
