"""Probes: `GET /health` says that the process is alive, `GET /ready` that it can serve."""

import asyncio
import logging
from collections.abc import Coroutine

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service import logs
from service.engine.port import EngineError
from service.web.errors import JsonResponse
from service.web.routes.received import background_of, service_of
from store.errors import StoreError

router = APIRouter()
logger = logging.getLogger(__name__)


@router.get("/health", summary="Is the process alive?")
async def health() -> HttpResponse:
    """Always yes; asks nobody else."""
    return JsonResponse({"status": "ok"})


@router.get("/ready", summary="Can it serve?")
async def ready(request: Request) -> HttpResponse:
    """Asks the store and the engine; 503 says which of them does not answer. A worker that is paused, as the engine was
    away, is no reason to send requests elsewhere."""
    service, worker = service_of(request), background_of(request).state
    store, engine = await asyncio.gather(_works(service.store.check()), _works(service.engine.check()))
    status = 200 if store and engine and worker != "broken" else 503
    words = {True: "ok", False: "unavailable"}
    found = {"status": words[status == 200], "store": words[store], "engine": words[engine]}
    return JsonResponse(found if worker is None else {**found, "worker": worker}, status)


async def _works(check: Coroutine[None, None, None]) -> bool:
    """Whether a check passes; the reason why not is for the log, as probes need no key."""
    try:
        await check
    except (StoreError, EngineError) as error:
        logs.event(logger, logging.WARNING, "not ready", reason=str(error))
        return False
    return True
