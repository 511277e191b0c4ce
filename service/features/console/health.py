"""How full the store is and whether the engine's servers are up, for administrators: some of what `/metrics` has."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from service.web.auth import HEALTH
from service.web.entering import Aside
from service.web.errors import JsonResponse
from store.jobs.model import QueueFigures

router = APIRouter()


class ServerShown(msgspec.Struct):
    """A server of the engine, as the process that answers sees it: tokens under way, and for how many it has room,
    where that is known.
    """

    server: str
    up: bool
    tokens: int | None
    room: int | None


class Health(msgspec.Struct):
    """The present state. `limits` are those that aren't off, of each shard and of all processes; `shards` has each by
    its number, null where the store can't be read; `removed` are turns that went undeleted since the processes
    started, by the reason.
    """

    limits: dict[str, float]
    shards: Mapping[int, QueueFigures] | None
    removed: dict[str, int]
    engines: list[ServerShown]
    engine_waiting: int
    object: Literal["console.health"] = "console.health"


@router.get(HEALTH, include_in_schema=False)
async def health(request: Aside) -> Response:
    """The store, its queues and the engine's servers. The gate lets administrators in, and nobody else."""
    found = await request.process.exposition.holdings()
    engines = list[ServerShown]()
    for name, up in found.servers.items():
        load = found.loads.get(name)
        engines.append(ServerShown(name, up, load and load.tokens, (load and load.room) or None))
    return JsonResponse(Health(dict(found.limits), found.shards, dict(found.removed), engines, found.waiting))
