"""One turn of a tree: shown, exported and imported. It leaves a service and comes back with a seal, so that nobody
can have changed it.

    turn      base64 of packed; or where the response was deleted: packed, sealed, as nobody may read that any more
    packed    version | packing | msgpack of what the store has of the turn (store/backup/records.py, store/codec.py)
    seal      the digest of packed, sealed for the tenant (service/responses/seal.py)

Nothing of a turn is read before its seal is. So it comes back only as it was, to the tenant that had it, at a service
with the same HARMONIUM_SEAL_KEYS or the same store.

Conversations are kept in Harmony's tokens, whichever model speaks. Samples of a model with a chat template are noted
beside them, in ids of its own vocabulary, whose texts aren't known here. A special token is never shown as text is.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Annotated, TypeVar, cast

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import Response

from service.api.outcome import display_role
from service.api.response import Usage
from service.decoding import decode
from service.errors import ApiError, InvalidRequest, invalid_value, not_allowed, not_served
from service.features.console.trees import US, Kind, kind_of
from service.features.models.known_ids import sampled_in
from service.harmony.messages import text_of
from service.harmony.tokens import BYTES_A_TOKEN, LAST_LEGAL, byte_table, mark_of, unpack
from service.responses.output.reading import READ
from service.responses.output.sealed import MAX_PAYLOAD_BYTES, TooLong, Unsealable
from service.responses.pictures import with_these
from service.responses.seal import Sealer
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.queries import Query
from service.web.received import Received
from store import codec
from store.backup.records import Saved
from store.backup.turns import Brought, bring_in, look_up, take_out
from store.errors import Conflict, NotFound, NotTerminal, ParentNotFound, TenantErased
from store.keys import digits_of, name_of
from store.turn import Picture, StoredMessage

FORMAT = 1
_VERSION = bytes([FORMAT])

TURN = "turn"
DIGEST = "turn digest"
"""The kinds of what is sealed."""

DIGEST_BYTES = 32

PIECE_CHARS = 1 << 18
"""How much base64 is read or written in one go, in a millisecond or less: no other thread runs meanwhile."""

PIECE_BYTES = PIECE_CHARS // 4 * 3

T = TypeVar("T")


class Portable(msgspec.Struct, frozen=True):
    """A turn to bring back. `seal` is None where `turn` is sealed itself."""

    turn: str
    seal: str | None = None


async def _work(size: int, work: Callable[[], T]) -> T:
    """The result of `work`, done by a thread where it takes long."""
    return work() if size <= codec.THREAD_FROM_BYTES else await asyncio.to_thread(work)


def portable(sealer: Sealer, turn: Saved) -> Portable:
    """The portable form of a turn, for the owner of the sealer. Raises InvalidRequest for one that is too large."""
    packed = _VERSION + codec.squeeze(msgspec.msgpack.encode(msgspec.structs.replace(turn, used=0, held=0)))
    if not turn.deleted:
        return Portable(_base64(packed), sealer.seal(DIGEST, _digest(packed)))
    try:
        return Portable(sealer.seal(TURN, packed))
    except TooLong:
        raise not_allowed(
            f"The turn '{turn.id}' was deleted, and its messages for later turns are too large to seal: {len(packed)} "
            f"bytes, at most {MAX_PAYLOAD_BYTES} are possible. 'harmonium backup' contains them.",
            "id",
        ) from None


def read_portable(sealer: Sealer, given: Portable) -> Saved:
    """The turn that comes back. Raises InvalidRequest for one that was changed, or isn't from here."""
    param, kind = ("turn", TURN) if given.seal is None else ("seal", DIGEST)
    text = given.seal or given.turn
    try:
        found, packed = sealer.open(text)
    except Unsealable as error:
        raise _foreign(param, text, str(error)) from None
    if found != kind:
        raise _foreign(param, text, "it seals something else")
    if given.seal is not None:
        digest, packed = packed, _bytes(given.turn)
        if _digest(packed) != digest:  # no secret: who has the seal had the turn
            words = "It belongs to another turn, or 'turn' was changed. Send the line as exported."
            raise invalid_value("seal", given.seal, words)
    if packed[:1] != _VERSION:
        raise invalid_value("turn", packed[:1].hex(), "A later release exported it. Import it there.")
    return msgspec.msgpack.decode(codec.unsqueeze(packed[1:]), type=Saved)


def _base64(packed: bytes) -> str:
    pieces = (packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES))
    return "".join(b64encode(piece).decode() for piece in pieces)


def _bytes(base64: str) -> bytes:
    """The bytes of base64; none of what is none."""
    pieces = (base64[at : at + PIECE_CHARS] for at in range(0, len(base64), PIECE_CHARS))
    try:
        return b"".join(b64decode(piece, validate=True) for piece in pieces)
    except ValueError:
        return b""


def _foreign(param: str, text: str, reason: str) -> InvalidRequest:
    return invalid_value(
        param,
        text,
        f"The turn can't be imported: {reason}. Import it into the project that exported it, at a service with the "
        "same store or the same HARMONIUM_SEAL_KEYS.",
    )


def _digest(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=DIGEST_BYTES).digest()


BODIES = 2
"""How many times the size of a request a turn may have that comes back: it has what was asked and what came of it."""

router = APIRouter()


class WholeTurn(msgspec.Struct):
    """A turn with all that there is of it: for people what it was given and what it says, null where that was deleted;
    and what brings it back. Times are in seconds since 1970.
    """

    id: str
    kind: Kind
    root: str
    parent: str | None
    status: str
    created_at: int
    deleted: bool
    input: msgspec.Raw | None
    response: msgspec.Raw | None
    turn: str
    seal: str | None
    object: str = "console.turn"


class Imported(msgspec.Struct):
    """The outcome of a turn's import: it is `new`, was `deleted` since and stays so, or was there. Where the store has
    an archive, which keeps the ids of what was deleted, no deleted turn comes back.
    """

    id: str
    new: bool
    deleted: bool
    object: str = "console.turn.imported"


@router.get("/console/api/turns/{id}", include_in_schema=False)
async def retrieve_turn(request: Aside, id: str) -> Response:
    """A turn of a tree, or a conversation, that no longer changes."""
    service, tenant = request.service, request.tenant
    async with ended_turn(request, id) as (name, root, turn):
        sealer = await service.seals.of(tenant)
        sealed = await _work(turn.payload, lambda: portable(sealer, turn))
        digits = digits_of(turn.id)
        answer = WholeTurn(
            id=name,
            kind=kind_of(digits),
            root=root,
            parent=None if turn.parent is None else name_of(digits_of(turn.parent)),
            status=turn.status,
            created_at=turn.created // US,
            deleted=turn.deleted,
            input=None if turn.items is None else msgspec.Raw(await _input_of(turn.items, turn.pictures)),
            response=None if turn.response is None else msgspec.Raw(turn.response),
            turn=sealed.turn,
            seal=sealed.seal,
        )
        return request.with_room(answer)


@router.post("/console/api/turns", include_in_schema=False)
async def import_turn(request: Aside) -> Response:
    """Store a turn again, under its id, behind the one that it continues."""
    service, tenant = request.service, request.tenant
    if not service.settings.store:
        raise not_served("turn", "given", "This service stores no responses.")
    body = await request.body(times=BODIES)
    async with request.preparing(len(body)):
        sealer, given = await service.seals.of(tenant), decode(body, Portable)
        turn = await _work(len(given.turn), lambda: read_portable(sealer, given))
        name = name_of(digits_of(turn.id))
        try:
            became = await bring_in(service.store, tenant, turn)
        except ParentNotFound:
            words = f"'{name}' continues a missing turn. Import the turns of a tree in their order. "
            words += "If the parent stays deleted, this turn can't be imported."
            raise ApiError(404, words, code="previous_response_not_found", param="turn") from None
        except NotFound:
            words = "Its id is from a store with more shards. Import it where HARMONIUM_SHARDS is at least as large."
            raise invalid_value("turn", name, words) from None
        except (Conflict, TenantErased) as error:
            erased = "It is from before its project was erased, and stays erased. Import only later turns."
            words = erased if isinstance(error, TenantErased) else "Another turn is stored under its id."
            raise ApiError(409, f"'{name}' can't be imported. {words}", code="conflict", param="turn") from None
    return JsonResponse(Imported(name, became is Brought.NEW, became is Brought.DELETED))


@asynccontextmanager
async def ended_turn(request: Received, id: str, *, deleted: bool = True) -> AsyncGenerator[tuple[str, str, Saved]]:
    """The id by which a turn of the caller's, or a conversation, is told, that of its tree's root, and all of it, which
    isn't used by that; a few large ones at once.

    Raises NotFound, without `deleted` also for one that was deleted and that others continue, InvalidRequest for what
    is under way, StoreUnavailable.
    """
    store, tenant = request.service.store, request.tenant
    try:
        found = await look_up(store, tenant, id)
    except NotTerminal:
        raise InvalidRequest(
            f"The response '{id}' is still running. Wait for its end, or cancel it.", param="id"
        ) from None
    async with request.preparing(found.bytes):
        turn = await take_out(tenant, found)
        if turn.deleted and not deleted:
            raise NotFound(id)
        yield name_of(digits_of(turn.id)), found.root, turn


async def _input_of(items: bytes, pictures: Sequence[Picture]) -> bytes:
    """The input of a turn, with its pictures in the place of references."""
    if not pictures:
        return items
    data = {each.digest: each.data for each in pictures}
    return msgspec.json.encode(await with_these(msgspec.json.decode(items, type=list[msgspec.Raw]), data))


# --- the outcomes of calls ---


class HostedOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call that the service made, by the id of its item: the `text` that the model was told; of a
    search also its `sources`.
    """

    id: str
    text: str
    sources: list[str]


class TurnOutcomes(msgspec.Struct, frozen=True):
    """The outcomes of a turn's calls, in their order, also of those that the client didn't ask to be shown."""

    id: str
    data: list[HostedOutcome]
    object: str = "console.turn.outcomes"


class _CallMade(msgspec.Struct, frozen=True):
    id: str = ""
    type: str = ""
    action: dict[str, msgspec.Raw] | None = None


class _Answered(msgspec.Struct, frozen=True):
    output: list[_CallMade] = []
    usage: Usage | None = None


@router.get("/console/api/turns/{id}/outcomes", include_in_schema=False)
async def list_outcomes(request: Aside, id: str) -> Response:
    """The outcomes of the calls that the service made in a turn, which no longer changes."""
    async with ended_turn(request, id, deleted=False) as (name, _, turn):
        data = await _work(turn.payload, lambda: list(outcomes_of(turn)))
    return request.with_room(TurnOutcomes(name, data))


def outcomes_of(turn: Saved) -> Iterator[HostedOutcome]:
    """The outcomes of a turn's calls, as its messages have them."""
    calls = msgspec.json.decode(turn.response or b"{}", type=_Answered).output
    told, sources = dict[int, str](), dict[int, list[str]]()
    for message in turn.messages:
        if message.item is None or message.item >= len(calls) or not calls[message.item].type.endswith("_call"):
            continue
        if message.role == "tool" and message.tokens:
            told[message.item] = text_of(message)
        elif message.role == display_role("browser") and "query" in (calls[message.item].action or {}):
            sources[message.item] = list(_addresses(msgspec.json.decode(message.name or "null")))
    for place, text in told.items():
        yield HostedOutcome(calls[place].id, text, sources.get(place, []))


def _addresses(display: object) -> Iterator[str]:
    """The addresses in what a tool displayed, of which no more is known here."""
    if isinstance(display, list):
        for each in cast(list[object], display):
            yield from _addresses(each)
    elif isinstance(display, str) and display.startswith(("https://", "http://")):
        yield display


# --- the tokens of a turn ---

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


class TokensQuery(Query):
    """The query for a page of tokens."""

    limit: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = MOST_TOKENS
    after: Annotated[int, Field(ge=0, le=LAST_TOKEN)] = 0


@router.get("/console/api/turns/{id}/tokens", include_in_schema=False)
async def list_tokens(request: Aside, query: Annotated[TokensQuery, InQuery()], id: str) -> Response:
    """The tokens of a turn that no longer changes, those behind the first `after` ones."""
    async with ended_turn(request, id, deleted=False) as (name, _, turn):
        messages, length = page_of(turn.messages, query.after, query.limit)
        usage = msgspec.json.decode(turn.response or b"{}", type=_Answered).usage
    end = query.after + query.limit
    answer = TurnTokens(
        id=name,
        input_tokens=usage and usage.input_tokens,
        cached_tokens=usage and usage.input_tokens_details.cached_tokens,
        output_tokens=usage and usage.output_tokens,
        length=length,
        messages=messages,
        has_more=end < length,
        after=end if end < length else None,
    )
    return request.with_room(answer)


def page_of(messages: Iterable[StoredMessage], after: int, limit: int) -> tuple[list[TokenizedMessage], int]:
    """The messages with their tokens behind the first `after` ones, at most `limit`, and how many there are in all.
    Notes that have none are no messages.
    """
    found: list[TokenizedMessage] = []
    place = index = 0
    for message in messages:
        own = sampled_in(message) if message.role == READ else message.tokens  # of what a model sampled, its note
        if not own:
            continue
        length = len(own) // BYTES_A_TOKEN
        first, end = max(0, after - place), min(length, after + limit - place)
        if first < end:
            ids = unpack(own[first * BYTES_A_TOKEN : end * BYTES_A_TOKEN])
            found.append(_tokenize(message, index, length, first, ids))
        place += length
        index += 1
    return found, place


def _tokenize(message: StoredMessage, index: int, length: int, first: int, ids: Iterable[int]) -> TokenizedMessage:
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
