"""The application: routes, what they share, and how refusals leave. Built once a process from the settings."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from service.admission import Admission
from service.auth import Keyring
from service.body import ClientGone
from service.creation import Service
from service.endpoints import create, health, models, stored
from service.engine.demo import DemoEngine
from service.engine.port import MODEL_CREATED, Engine, EngineError, EngineUnavailable, ModelCard
from service.errors import engine_refusal, envelope, fault, store_refusal
from service.gate import Arrival, Gate
from service.logs import event
from service.protocol import segments, tokens
from service.protocol.decoding import bounded_list
from service.protocol.errors import ApiError, InvalidRequest
from service.protocol.input import MAX_PARTS
from service.protocol.prompt import Limits
from service.settings import DAY_SECONDS, Settings
from service.sweeping import sweep_for_ever
from store.caps import Caps
from store.connection import connect
from store.errors import StoreError
from store.history import ConversationHistoryStore

logger = logging.getLogger(__name__)

DEMO_MODEL = "gpt-oss-20b"
DEMO_CONTEXT_TOKENS = 131_072
"""What the demo engine stands in for, and its context."""


def create_app(settings: Settings, *, engine: Engine | None = None) -> ASGIApp:
    """The ASGI application. `engine` replaces the one that the settings name, for tests."""
    tokens.byte_table()
    segments.text_table()
    for limit in (settings.max_input_items, settings.max_tools, MAX_PARTS):
        bounded_list(limit)
    service = Service(
        settings=settings,
        store=open_store(settings),
        engine=engine or open_engine(settings),
        limits=Limits(settings.max_input_items, settings.max_tools, settings.max_tools_bytes),
    )
    app = FastAPI(
        title="harmonium",
        version=version("harmonium"),
        description="The OpenAI Responses API over gpt-oss, with every conversation kept.",
        lifespan=_lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.admission = admission = Admission(settings.max_concurrent_requests)
    for router in (create.router, stored.router, models.router):
        app.include_router(router, prefix="/v1")
    app.include_router(health.router)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return Gate(app, Keyring(settings.api_keys), admission)


def open_store(settings: Settings) -> ConversationHistoryStore:
    """The store behind REDIS_URL."""
    redis = connect(
        settings.redis_url,
        max_connections=settings.store_connections,
        timeout_seconds=settings.store_timeout_seconds,
    )
    return ConversationHistoryStore(
        redis,
        prefix=settings.key_prefix,
        shards=settings.shards,
        timeout_seconds=settings.store_timeout_seconds,
        max_chain_bytes=settings.max_chain_bytes,
        caps=Caps(
            responses=settings.max_responses,
            trees=settings.max_trees,
            bytes=settings.max_bytes,
            chain_messages=settings.max_chain_messages,
            idle_seconds=settings.idle_days * DAY_SECONDS,
        ),
        cache_bytes=settings.store_cache_bytes,
        pin_seconds=settings.pin_seconds,
    )


def open_engine(settings: Settings) -> Engine:
    """The engine that ENGINE names."""
    if settings.engine == "vllm":
        from service.engine.vllm.http import Access, VllmHttpEngine  # its HTTP client is for who has a server

        access = Access(
            urls=settings.vllm_url,
            api_key=settings.vllm_api_key.get_secret_value(),
            connections=settings.vllm_connections,
            connect_seconds=settings.vllm_connect_seconds,
            probe_seconds=settings.vllm_probe_seconds,
        )
        return VllmHttpEngine(access, model=settings.model, context_tokens=settings.context_tokens)
    if settings.engine == "vllm-local":
        from service.engine.vllm.local import VllmLocalEngine  # vLLM takes seconds to import, where it is at all

        return VllmLocalEngine(
            settings.vllm_model,
            settings.vllm_args,
            served_as=settings.model,
            context_tokens=settings.context_tokens,
        )
    card = ModelCard(settings.model or DEMO_MODEL, MODEL_CREATED, settings.context_tokens or DEMO_CONTEXT_TOKENS)
    return DemoEngine(card, settings.demo_tokens_per_second)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    service = cast(Service, app.state.service)
    try:
        await service.engine.start()
    except BaseException as error:
        if isinstance(error, EngineUnavailable):
            event(logger, logging.ERROR, "the engine does not start", reason=str(error))
        await service.engine.close()
        await service.store.close()
        raise
    gc.collect()
    gc.freeze()  # what start-up made stays for good; looking through it again and again took a tenth of the time
    sweeping = asyncio.create_task(sweep_for_ever(service.store, service.settings.sweep_seconds))
    try:
        yield
    finally:
        sweeping.cancel()
        # requests that were cut off may still be storing what was said
        await cast(Admission, app.state.admission).wait_until_empty(2 * service.settings.store_timeout_seconds)
        await service.engine.close()
        await service.store.close()


async def _on_api_error(request: Request, error: Exception) -> Response:
    return envelope(cast(ApiError, error))


async def _on_store_error(request: Request, error: Exception) -> Response:
    return envelope(store_refusal(cast(StoreError, error)))


async def _on_engine_error(request: Request, error: Exception) -> Response:
    return envelope(engine_refusal(cast(EngineError, error)))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """A route or a method that isn't there."""
    status = cast(HTTPException, error).status_code
    return envelope(ApiError(status, f"Invalid URL ({request.method} {request.url.path[:200]})."))


async def _on_invalid(request: Request, error: Exception) -> Response:
    """A query or path parameter of the wrong kind."""
    first = cast(RequestValidationError, error).errors()[0]
    param = str(first["loc"][-1])
    return envelope(
        InvalidRequest(
            f"Invalid value for '{param}': {str(first['input'])[:60]!r}. {first['msg']}.",
            code="invalid_value",
            param=param,
        )
    )


async def _on_client_gone(request: Request, error: Exception) -> Response:
    """Nobody is there to be answered; the log gets the status that nginx uses for it."""
    cast(Arrival, request.scope["arrival"]).facts["client"] = "gone"
    return Response(status_code=499)


async def _on_fault(request: Request, error: Exception) -> Response:
    """A mistake of ours. Starlette raises it again behind the answer, so the gate logs it."""
    return envelope(fault())


_HANDLERS = {
    ApiError: _on_api_error,
    StoreError: _on_store_error,
    EngineError: _on_engine_error,
    ClientGone: _on_client_gone,
    HTTPException: _on_http_error,
    RequestValidationError: _on_invalid,
    Exception: _on_fault,
}
