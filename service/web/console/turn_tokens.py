"""The tokens of a turn as they are stored, page by page: what a model read and wrote, with the text of each.

Conversations are kept in Harmony's tokens, whichever model speaks. Samples of a model with a chat template are noted
beside them, in ids of its own vocabulary, whose texts aren't known here. A special token is never shown as text is.
"""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.harmony.tokens import BYTES_A_TOKEN, LAST_LEGAL, byte_table, mark_of, unpack
from service.responses.templated import READ, sampled_in
from service.web.console.turns import ended_turn
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter, Query
from service.web.routes.stored import with_room
from store.turn import StoredMessage

router = PlainRouter()

MOST_TOKENS = 4_096
"""The most of a page: about a millisecond, and 105 kB of English."""

LAST_TOKEN = 1 << 31
"""A position behind the last token of any turn: a chain has less bytes."""

HARMONY = "o200k_harmony"


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token. `text` is null where it is no whole text: then `bytes` has what it stands for, where that is known.
    The text of a `special` one is its name, and nothing that anybody wrote.
    """

    id: int
    text: str | None
    special: bool = False
    bytes: list[int] | None = None


class TokenizedMessage(msgspec.Struct, frozen=True):
    """A message of a turn, the `index`-th, of `length` tokens: those from its `first`-th on that are in the page.
    `vocabulary` is null where it isn't known here.
    """

    index: int
    role: str
    name: str | None
    channel: str | None
    recipient: str | None
    content_type: str | None
    vocabulary: str | None
    length: int
    first: int
    tokens: list[Token]


class TurnTokens(msgspec.Struct, frozen=True):
    """A page. `length` is how many tokens all of the turn's messages have, `after` what the next page is asked with;
    the rest is of the response's usage, and null where it has none.
    """

    id: str
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    length: int
    messages: list[TokenizedMessage]
    has_more: bool
    after: int | None
    object: str = "console.turn.tokens"


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


class _Response(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class Page(NamedTuple):
    """Messages with the tokens of a page, and how many there are in all."""

    messages: list[TokenizedMessage]
    length: int


class TokensQuery(Query):
    """The query for a page of tokens."""

    limit: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = MOST_TOKENS
    after: Annotated[int, Field(ge=0, le=LAST_TOKEN)] = 0


@router.route("GET", "/console/api/turns/{id}/tokens", query=TokensQuery)
async def list_tokens(request: Request, query: TokensQuery, id: str) -> HttpResponse:
    """The tokens of a turn that no longer changes, those behind the first `after` ones."""
    async with ended_turn(request, id, deleted=False) as (name, _, turn):
        page = page_of(turn.messages, query.after, query.limit)
        usage = (
            None if turn.response is None else msgspec.json.decode(turn.response, type=_Response).usage
        ) or _Usage()
    end = query.after + query.limit
    more = end < page.length
    answer = TurnTokens(
        id=name,
        input_tokens=usage.input_tokens,
        cached_tokens=(usage.input_tokens_details or _Details()).cached_tokens,
        output_tokens=usage.output_tokens,
        length=page.length,
        messages=page.messages,
        has_more=more,
        after=end if more else None,
    )
    return with_room(request, JsonResponse(answer))


def page_of(messages: Iterable[StoredMessage], after: int, limit: int) -> Page:
    """The tokens of messages behind the first `after` ones, at most `limit`. Notes that have none are no messages."""
    found: list[TokenizedMessage] = []
    place = index = 0
    for message in messages:
        own = _own(message)
        if not own:
            continue
        length = len(own) // BYTES_A_TOKEN
        first, end = max(0, after - place), min(length, after + limit - place)
        if first < end:
            ids = unpack(own[first * BYTES_A_TOKEN : end * BYTES_A_TOKEN])
            found.append(_shown(message, index, length, first, ids))
        place += length
        index += 1
    return Page(found, place)


def _own(message: StoredMessage) -> bytes:
    """The packed ids of a message, or of a note of what a model sampled."""
    return sampled_in(message) if message.role == READ else message.tokens


def _shown(message: StoredMessage, index: int, length: int, first: int, ids: Iterable[int]) -> TokenizedMessage:
    is_known = message.role != READ
    return TokenizedMessage(
        index=index,
        role=message.role,
        name=message.name if message.role == "tool" else None,
        channel=message.channel,
        recipient=message.recipient,
        content_type=message.content_type,
        vocabulary=HARMONY if is_known else None,
        length=length,
        first=first,
        tokens=[token_of(id) if is_known else Token(id, None) for id in ids],
    )


def token_of(id: int) -> Token:
    """A token of Harmony's vocabulary; only its id where that hasn't it."""
    if (mark := mark_of(id)) is not None:
        return Token(id, mark, special=True)
    said = byte_table()[id] if 0 <= id <= LAST_LEGAL else b""
    if not said:
        return Token(id, None)
    try:
        return Token(id, said.decode())
    except UnicodeDecodeError:  # a part of a character
        return Token(id, None, bytes=list(said))
