"""The application: routes, what they share, and how refusals leave. Built once a process from the settings."""

import asyncio
import ctypes
import gc
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, cast

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from service.api.content import MAX_PARTS
from service.background.tasks import Background
from service.background.timing import TIMING, Timing
from service.decoding import bounded_list
from service.engine.port import Engine, EngineUnavailable
from service.entrance import Entrance
from service.harmony import tokens
from service.logs import event
from service.metrics.counters import lag_counted
from service.metrics.scrape import Exposition, limits_of, read_shards
from service.process import Compose, Offered, also_spoken, close_service, features, open_service, reread, start_service
from service.responses.prompt.read import MAX_ITEMS, MAX_TOOLS
from service.responses.service import Service
from service.settings.core import BODIES, MAX_FOLLOWERS, MAX_QUEUED_REQUESTS, MAX_SOCKETS, CoreSettings
from service.web.admission.slots import Admission
from service.web.beginnings import BEGINNINGS, Beginnings
from service.web.dialect import OPENAI, Dialect
from service.web.exchange import METHODS
from service.web.gate import HANDLERS, Gate
from service.web.nowhere import Nowhere
from service.web.received import EXCHANGE, Process
from service.web.routes import (
    conversations,
    create,
    health,
    models,
    stored,
    welcome,
)
from service.web.stopping import on_stop_signal, rereading

logger = logging.getLogger(__name__)

EXPOSED_HEADERS = (
    "x-request-id",
    "etag",
    "retry-after",
    "x-should-retry",
    "openai-processing-ms",
    "x-harmonium-tools-left-out",
    "x-harmonium-items-left-out",
    "x-harmonium-engine",
    "x-harmonium-after",
    "idempotent-replayed",
    "retry-after-ms",
    *(f"x-ratelimit-{name}-{what}" for name in ("limit", "remaining", "reset") for what in ("requests", "tokens")),
)
"""The response headers that web pages of other origins may read, besides those that browsers let them read."""

CORS_SECONDS = 600
"""How long browsers remember that a web page may call."""

PROBE_REQUESTS = 16
"""Requests at once that are neither a probe nor a scrape: all of them are answered with 404."""

EVERYTHING = Offered()

M_MMAP_THRESHOLD = -3
"""The option of glibc's `mallopt`, as in its malloc.h."""

LARGE_BLOCK_BYTES = 128 << 10
"""From here on a block is mapped alone, so that no other one keeps it from Linux once it is freed. glibc begins with as
much, but goes up to 32 MiB by what it sees freed.
"""


def create_app(
    settings: CoreSettings,
    *,
    engine: Engine | None = None,
    compose: Compose | None = None,
    timing: Timing = TIMING,
) -> ASGIApp:
    """The ASGI application. `engine` replaces the one that the settings name, and `compose` changes the parts after all
    features have; they and `timing` are for tests.
    """
    tokens.byte_table()
    service = open_service(settings, engine, compose)
    tenants = service.tenants
    for limit in (MAX_ITEMS, MAX_TOOLS, MAX_PARTS):
        bounded_list(limit)
    # engines in a file may change to servers for Chat Completions and their like
    passes_on = settings.chats != "refuse" and (bool(settings.engines) or service.engine.passes_on(""))
    offered = Offered(passes_on, remembers=settings.chats == "remember", administers=settings.has_projects)
    background = Background(service, works=settings.embedded_worker, timing=timing)
    admission = Admission(
        service.metrics,
        requests=settings.max_concurrent_requests,
        queued=MAX_QUEUED_REQUESTS,
        queue_seconds=settings.admission_wait_seconds,
        followers=MAX_FOLLOWERS,
        sockets=MAX_SOCKETS,
        bodies=BODIES * settings.max_body_bytes,
        several=lambda: tenants.keys.several,
        weight=partial(_weight, settings.weights, tenants.entrance),
    )
    process = _process(service, background, admission)
    app = _application(process, all_routers(offered), partial(_lifespan, process))
    for feature in features():
        for name, value in feature.state(service, admission).items():
            setattr(app.state, name, value)
    gate = Gate(app, service.metrics)
    if not settings.cors_origins:
        return gate
    return CORSMiddleware(
        gate,
        allow_origins=settings.cors_origins,
        allow_methods=METHODS,
        allow_headers=["*"],
        expose_headers=EXPOSED_HEADERS,
        max_age=CORS_SECONDS,
    )


def all_routers(offered: Offered = EVERYTHING) -> list[APIRouter]:
    """The routers, those of most requests first: a request passes the routes before its own one.
    `/openapi.json` is a file that is made of them (routes/welcome.py).
    """
    responses = [create.router, stored.router, create.others]
    own = [router for feature in features() for router in feature.responses_routers()]
    routers = [*responses, conversations.router, models.router, *own, health.router, welcome.router]
    routers += [router for feature in features() for router in feature.routers(offered)]
    spoken = [*responses, models.router, *own]
    return routers + [under(dialect, each) for dialect in also_spoken() for each in spoken]


def under(dialect: Dialect, router: APIRouter) -> APIRouter:
    """The routes of a router in another dialect than OpenAI's, under its prefix, and not in the document of the API."""

    async def speak(connection: HTTPConnection) -> None:
        connection.scope[EXCHANGE].dialect = dialect

    also = APIRouter(prefix=dialect.prefix, dependencies=[Depends(speak)])
    for route in router.routes:
        if isinstance(route, APIRoute):
            path = route.path.removeprefix(OPENAI.prefix)
            methods, extra = [*(route.methods or ())], route.openapi_extra
            also.add_api_route(path, route.endpoint, methods=methods, include_in_schema=False, openapi_extra=extra)
        elif isinstance(route, APIWebSocketRoute):
            also.add_api_websocket_route(route.path.removeprefix(OPENAI.prefix), route.endpoint)
    return also


def _application(
    process: Process,
    routers: Sequence[APIRouter],
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[object]] | None = None,
) -> FastAPI:
    """FastAPI's application with these routers; `lifespan` is around the time in which it serves."""
    routes = [route for router in routers for route in router.routes]
    app = FastAPI(
        routes=[*routes, Nowhere(routers)],
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # spans and metrics are ours
        exception_handlers=cast(Any, HANDLERS),
        lifespan=cast(Any, lifespan),
    )
    app.state.process = process
    return app


def _weight(given: Mapping[str, float], entrance: Entrance, tenant: str) -> float:
    """The weight of a tenant: that of its project, else the one that is `given` in the settings."""
    weight = entrance.weight(tenant)
    return given.get(tenant, 1.0) if weight is None else weight


def create_probe_app(service: Service, background: Background) -> ASGIApp:
    """`/health`, `/ready` and `/metrics` of a worker: of the store and the engine in `service`, and what it counted."""
    admission = Admission(service.metrics, requests=PROBE_REQUESTS, followers=0, bodies=0)
    app = _application(_process(service, background, admission), [health.router])
    return Gate(app, service.metrics)


def _process(service: Service, background: Background, admission: Admission) -> Process:
    shards = partial(read_shards, service.jobs)
    places = {name: place for feature in features() for name, place in feature.places.items()}
    exposition = Exposition(service.metrics, shards, service.engine, limits_of(service.settings))
    return Process(service, background, admission, exposition, (OPENAI, *also_spoken()), places)


def settle() -> None:
    """Keep what start-up made out of garbage collection, as it stays for good. Give back to Linux the memory that it
    freed, and from now on each large block as soon as it is freed. Never call this while requests are served.
    """
    gc.collect()
    gc.freeze()  # collecting it again and again took a tenth of the time
    if sys.platform == "linux":
        system = ctypes.CDLL(None)
        if hasattr(system, "malloc_trim"):  # glibc has it, musl doesn't
            system.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
            system.malloc_trim(0)


@asynccontextmanager
async def _lifespan(process: Process, _: object) -> AsyncGenerator[dict[str, Beginnings]]:
    """The process from its start to its end."""
    service, background, admission = process.service, process.background, process.admission
    try:
        await start_service(service)
    except BaseException as error:
        if isinstance(error, EngineUnavailable):
            event(logger, logging.ERROR, "the engine does not start", reason=str(error))
        await close_service(service)
        raise
    settle()

    def stop() -> None:
        background.stop()
        admission.stop()

    working = asyncio.create_task(background.run())
    try:
        with on_stop_signal(stop), rereading(service.tenants.keys, partial(reread, service)):
            async with lag_counted(service.metrics):
                tenants = service.tenants
                # the tenant of a new connection is unknown, and pacing would take it for another one
                yield {BEGINNINGS: Beginnings(lambda whose: tenants.keys.several and tenants.pacing.several(whose))}
    finally:
        stop()
        # requests that were cut off may still be storing their turns
        await admission.wait_until_empty(2 * service.settings.store_timeout_seconds)
        await asyncio.wait([working])
        await close_service(service)
