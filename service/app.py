"""The application: routes, what they share, and how refusals leave. Built once a process from the settings."""

import asyncio
import ctypes
import gc
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Lifespan

from service.api.content import MAX_PARTS
from service.background.tasks import Background
from service.background.timing import TIMING, Timing
from service.configured_engines import reread
from service.decoding import bounded_list
from service.engine.port import Engine, EngineUnavailable
from service.errors import ApiError
from service.harmony import tokens
from service.logs import event
from service.metrics.counters import lag_counted
from service.metrics.scrape import Exposition, limits_of, read_shards
from service.process import close_service, open_service, start_service
from service.responses.prompt.read import MAX_ITEMS, MAX_TOOLS
from service.responses.service import Service
from service.sandbox.port import Sandbox
from service.settings.settings import BODIES, MAX_FOLLOWERS, MAX_QUEUED_REQUESTS, MAX_SOCKETS, Settings
from service.tenants.audit import FailedLogins
from service.tenants.keyring import KeyRing
from service.web.admin import routes as admin
from service.web.admission.slots import Admission
from service.web.auth import Entrance
from service.web.console import health as holdings
from service.web.console import page, trees, turns
from service.web.dialect import DIALECTS, OPENAI
from service.web.errors import envelope
from service.web.middleware import METHODS, REFUSALS, Gate
from service.web.plain import PlainFirst, PlainRouter
from service.web.routes import (
    containers,
    conversations,
    create,
    health,
    models,
    proxy,
    stored,
    traces,
    welcome,
)
from service.web.routes.received import exchange_of
from service.web.socket.connection import Sockets
from service.web.stopping import on_stop_signal, rereading

logger = logging.getLogger(__name__)

MAX_SHOWN_PATH = 200
"""How much of a path is shown, and compared with those of routes."""

EXPOSED_HEADERS = (
    "x-request-id",
    "etag",
    "retry-after",
    "x-should-retry",
    "openai-processing-ms",
    "x-harmonium-tools-left-out",
    "x-harmonium-items-left-out",
    "idempotent-replayed",
    "retry-after-ms",
    *(f"x-ratelimit-{name}-{what}" for name in ("limit", "remaining", "reset") for what in ("requests", "tokens")),
)
"""The response headers that web pages of other origins may read, besides those that browsers let them read."""

CORS_SECONDS = 600
"""How long browsers remember that a web page may call."""

PROBE_REQUESTS = 16
"""Requests at once that are neither a probe nor a scrape: all of them are answered with 404."""


def create_app(
    settings: Settings, *, engine: Engine | None = None, sandbox: Sandbox | None = None, timing: Timing = TIMING
) -> ASGIApp:
    """The ASGI application. `engine` and `sandbox` replace those that the settings name; they and `timing` are for
    tests.
    """
    tokens.byte_table()
    service = open_service(settings, engine, sandbox)
    tenants = service.tenants
    for limit in (MAX_ITEMS, MAX_TOOLS, MAX_PARTS):
        bounded_list(limit)
    # engines in a file may change to servers for Chat Completions and their like
    passes_on = settings.pass_through and (bool(settings.engines) or service.engine.passes_on(""))
    app = routed(_lifespan, passes_on=passes_on, administers=settings.has_projects)
    background = Background(service, works=settings.worker, timing=timing)
    admission = Admission(
        service.metrics,
        requests=settings.max_concurrent_requests,
        queued=MAX_QUEUED_REQUESTS,
        queue_seconds=settings.queue_seconds,
        followers=MAX_FOLLOWERS,
        sockets=MAX_SOCKETS,
        bodies=BODIES * settings.max_body_bytes,
        several=lambda: tenants.keys.several,
        weight=partial(_weight, settings.weights, tenants.key_ring),
    )
    gate = _gated(app, service, background, admission, Sockets(service, admission))
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


def routed(lifespan: Lifespan[FastAPI] | None = None, *, passes_on: bool = True, administers: bool = True) -> FastAPI:
    """The routes, with nothing behind them yet; `passes_on` and `administers` are as for `_routers`.
    `/openapi.json` is a file that is made of them (routes/welcome.py)."""
    app = FastAPI(openapi_url=None, lifespan=lifespan, redirect_slashes=False, exception_handlers=HANDLERS)
    for prefix, router in _routers(passes_on=passes_on, administers=administers):
        if isinstance(router, PlainRouter):
            app.router.routes += [each.under(prefix) for each in router.routes]
        else:
            app.include_router(router)
    return app


def _routers(*, passes_on: bool, administers: bool) -> list[tuple[str, APIRouter | PlainRouter]]:
    """The routers and their prefixes. With `passes_on` there is a server for Chat Completions and their like, with
    `administers` there are projects in the store.
    """
    ours: list[APIRouter | PlainRouter] = [conversations.router, containers.router, traces.router]
    if administers:
        ours.append(admin.router)
    if passes_on:
        ours.append(proxy.router)
    bare = [holdings.router] if administers else []
    bare += [page.router, trees.router, turns.router]
    return [
        *((each.prefix, router) for each in DIALECTS for router in (create.router, stored.router, models.router)),
        *((OPENAI.prefix, router) for router in ours),
        *(("", router) for router in (*bare, welcome.router, health.router)),
    ]


def _weight(given: Mapping[str, float], ring: KeyRing | None, tenant: str) -> float:
    """The weight of a tenant: that of its project, else the one that is `given` in the settings."""
    weight = None if ring is None else ring.weight(tenant)
    return given.get(tenant, 1.0) if weight is None else weight


def create_probe_app(service: Service, background: Background) -> ASGIApp:
    """`/health`, `/ready` and `/metrics` of a worker: of the store and the engine in `service`, and what it counted."""
    app = FastAPI(openapi_url=None, redirect_slashes=False, exception_handlers=HANDLERS)
    app.include_router(health.router)
    admission = Admission(service.metrics, requests=PROBE_REQUESTS, followers=0, bodies=0)
    return _gated(app, service, background, admission)


def _gated(
    app: FastAPI,
    service: Service,
    background: Background,
    admission: Admission,
    sockets: Sockets | None = None,
) -> Gate:
    """The application behind its gate; its state has what routes need."""
    app.state.service, app.state.background, app.state.admission = service, background, admission
    app.state.exposition = Exposition(
        service.metrics, partial(read_shards, service.jobs), service.engine, limits_of(service.settings)
    )
    tenants = service.tenants
    entrance = Entrance(tenants.keys, tenants.key_ring)
    failed = None if tenants.key_ring is None else FailedLogins(tenants.directory.registry)
    return Gate(PlainFirst(app), entrance, admission, tenants.pacing, service.metrics, service.tracer, sockets, failed)


def settle() -> None:
    """Keep what start-up made out of garbage collection, as it stays for good, and give freed memory back to Linux.
    Never call this while requests are served.
    """
    gc.collect()
    gc.freeze()  # collecting it again and again took a tenth of the time
    if sys.platform == "linux":
        system = ctypes.CDLL(None)
        if hasattr(system, "malloc_trim"):  # glibc has it, musl doesn't
            system.malloc_trim(0)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    service = cast(Service, app.state.service)
    tenants = service.tenants
    try:
        await start_service(service)
    except BaseException as error:
        if isinstance(error, EngineUnavailable):
            event(logger, logging.ERROR, "the engine does not start", reason=str(error))
        await close_service(service)
        raise
    settle()
    background, admission = cast(Background, app.state.background), cast(Admission, app.state.admission)

    def stop() -> None:
        background.stop()
        admission.stop()

    working = asyncio.create_task(background.run())
    listening = None if tenants.key_ring is None else asyncio.create_task(tenants.key_ring.run())
    try:
        with on_stop_signal(stop), rereading(tenants.keys, partial(reread, service)):
            async with lag_counted(service.metrics):
                yield
    finally:
        stop()
        # requests that were cut off may still be storing their turns
        await admission.wait_until_empty(2 * service.settings.store_timeout_seconds)
        await asyncio.wait([working])
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        await close_service(service)


async def _on_error(request: Request, error: Exception) -> Response:
    """The response to a refusal or a failure. Starlette raises a bug again after its response, so the gate logs it."""
    return envelope(exchange_of(request).refused(error))


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    """A route or a method that isn't there."""
    path = request.url.path[:MAX_SHOWN_PATH]
    allow = _served(request, path) if error.status_code == 405 else []
    message = f"Invalid URL ({request.method} {path}). {_advice(request, path, allow)}"
    return await _on_error(request, ApiError(error.status_code, message, allow=allow))


def _advice(request: Request, path: str, allow: Sequence[str]) -> str:
    """Where to go instead."""
    if allow:
        *others, last = allow
        return f"It takes {', '.join(others)} and {last}." if others else f"It takes {last}."
    for likely in (path.replace("/v1/v1/", "/v1/", 1), path.rstrip("/"), f"/v1{path}"):
        if likely != path and _served(request, likely):
            return f"Did you mean {likely}?"
    if path.rstrip("/").endswith("/completions"):
        return "This service speaks the Responses API, not Chat Completions. Set your client to it: POST /v1/responses."
    return "Paths begin with /v1 or /open-responses/v1."


def _served(request: Request, path: str) -> list[str]:
    """The methods with which there is a route for a path."""
    routes = cast(FastAPI, request.app).routes
    scope = {**request.scope, "path": path, "raw_path": path.encode()}
    return [
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]


HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    **dict.fromkeys((*REFUSALS, Exception), _on_error),
    HTTPException: _on_http_error,
}
