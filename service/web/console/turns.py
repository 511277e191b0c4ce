"""One turn of a tree, as a file has it, and back: what an export and an import are made of."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
from fastapi import Request
from starlette.responses import Response as HttpResponse

from service.api.decoding import decode
from service.errors import ApiError, InvalidRequest, invalid_value
from service.web.console.portable import Portable, portable, read
from service.web.console.shapes import US, Kind, kind_of
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter
from service.web.routes.received import body_of, exchange_of, preparing, service_of
from service.web.routes.stored import with_room
from store.backup.records import Saved
from store.backup.turns import Brought, bring_back, look_up, take_out
from store.errors import Conflict, NotFound, NotTerminal, ParentNotFound
from store.keys import digits_of, name_of

BODIES = 2
"""How many times the size of a request a turn may have that comes back: it has what was asked and what came of it."""

router = PlainRouter()


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


class EndedTurn(NamedTuple):
    """A turn that no longer changes: the id by which it is told, that of its tree's root, and all of it."""

    name: str
    root: str
    turn: Saved


class Imported(msgspec.Struct):
    """What became of a turn that was brought: it is `new`, was `deleted` since and stays so, or was there."""

    id: str
    new: bool
    deleted: bool
    object: str = "console.turn.imported"


_BROUGHT = msgspec.json.Decoder(Portable)


@router.route("GET", "/console/api/turns/{id}")
async def retrieve_turn(request: Request, id: str) -> HttpResponse:
    """A turn of a tree, or a conversation, that no longer changes."""
    service, tenant = service_of(request), exchange_of(request).tenant
    async with ended_turn(request, id) as (name, root, turn):
        sealed = await portable((await service.seals.of(tenant)), turn)
        digits = digits_of(turn.id)
        answer = WholeTurn(
            id=name,
            kind=kind_of(digits),
            root=root,
            parent=None if turn.parent is None else name_of(digits_of(turn.parent)),
            status=turn.status,
            created_at=turn.created // US,
            deleted=turn.deleted,
            input=_shown(turn.items),
            response=_shown(turn.response),
            turn=sealed.turn,
            seal=sealed.seal,
        )
        return with_room(request, JsonResponse(answer))


@router.route("POST", "/console/api/turns")
async def import_turn(request: Request) -> HttpResponse:
    """Store a turn again, under its id, behind the one that it continues."""
    service, tenant = service_of(request), exchange_of(request).tenant
    body = await body_of(request, times=BODIES)
    async with preparing(request, len(body)):
        turn = await read(await service.seals.of(tenant), decode(body, _BROUGHT))
        name = name_of(digits_of(turn.id))
        try:
            became = await bring_back(service.store, tenant, turn)
        except ParentNotFound:
            raise ApiError(
                404,
                f"'{name}' continues '{turn.parent}', which is not there. Import the turns of a tree in their order.",
                code="previous_response_not_found",
                param="turn",
            ) from None
        except NotFound:
            raise invalid_value(
                "turn", name, "Its id is of a store with more shards. Import it where HARMONIUM_SHARDS is no smaller."
            ) from None
        except Conflict:
            raise ApiError(409, f"Another turn is stored as '{name}'.", code="conflict", param="turn") from None
    return JsonResponse(Imported(name, became is Brought.NEW, became is Brought.DELETED))


@asynccontextmanager
async def ended_turn(request: Request, id: str, *, deleted: bool = True) -> AsyncGenerator[EndedTurn]:
    """A turn of the caller's, or a conversation, which isn't used by that; a few large ones at once.

    Raises NotFound, without `deleted` also for one that was deleted and that others continue, InvalidRequest for what
    is under way, StoreUnavailable.
    """
    store, tenant = service_of(request).store, exchange_of(request).tenant
    try:
        found = await look_up(store, tenant, id)
    except NotTerminal:
        raise InvalidRequest(
            f"The response '{id}' is still under way. Wait for its end, or cancel it.", param="id"
        ) from None
    async with preparing(request, found.bytes):
        turn = await take_out(tenant, found)
        if turn.deleted and not deleted:
            raise NotFound(id)
        yield EndedTurn(name_of(digits_of(turn.id)), found.root, turn)


def _shown(text: bytes | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text)
