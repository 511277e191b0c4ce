"""Probes and scrapes: `GET /health` says that the process is alive, `GET /ready` that it can serve, `GET /metrics` all
that is counted here, for Prometheus. The gate says who may scrape.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service import logs
from service.engine.port import EngineError
from service.metrics.scrape import Exposition
from service.responses.service import Service
from service.web.errors import JsonResponse
from service.web.routes.received import background_of, service_of
from store.errors import LayoutMismatch, StoreReadOnly, StoreUnavailable, StoreUnconfirmed

router = APIRouter(tags=["Service"])
logger = logging.getLogger(__name__)


ALSO = ["HEAD", "OPTIONS"]
"""How probes of load balancers and uptime monitors ask besides."""


@router.api_route("/health", methods=ALSO, include_in_schema=False)
@router.get("/health", summary="Is the process alive?", operation_id="health")
async def health() -> HttpResponse:
    """Always yes; asks nobody else."""
    return JsonResponse({"status": "ok"})


@router.api_route("/ready", methods=ALSO, include_in_schema=False)
@router.get("/ready", summary="Can it serve?", operation_id="ready")
async def ready(request: Request) -> HttpResponse:
    """Asks the store and the engine; 503 says which of them does not answer, that the store takes no writes, or that it
    has more shards or another layout than this process knows. A worker that is paused, as the engine was away, is no
    reason to send requests elsewhere."""
    service, worker = service_of(request), background_of(request).state
    store, engine = await asyncio.gather(_state(_check_store(service)), _state(service.engine.check()))
    ready = store == engine == "ok" and worker != "broken"
    found = {"status": "ok" if ready else "unavailable", "store": store, "engine": engine}
    return JsonResponse(found if worker is None else {**found, "worker": worker}, 200 if ready else 503)


async def _check_store(service: Service) -> None:
    """Raises StoreError where the store can't be used. Other limits than the store's keep nobody from answering."""
    await service.store.check()
    await service.layout.check(limits=False)


async def _state(check: Coroutine[None, None, None]) -> str:
    """The result of a check in a word; the reason is for the log, as probes need no key. The loss of the store is
    logged when it happens, and not again here (service/responses/service.py).
    """
    try:
        await check
    except StoreReadOnly:
        return "read-only"
    except LayoutMismatch:
        return "mismatch"
    except StoreUnconfirmed:
        return "unconfirmed"
    except StoreUnavailable:
        return "unavailable"
    except EngineError as error:
        logs.event(logger, logging.WARNING, "not ready", reason=str(error))
        return "unavailable"
    return "ok"


@router.get("/metrics", summary="Metrics for Prometheus", operation_id="metrics")
async def metrics(request: Request) -> HttpResponse:
    """In Prometheus's text format, or as OpenMetrics where Accept names it; docs/metrics.md lists them."""
    exposition = cast(Exposition, request.app.state.exposition)
    body, kind = await exposition.scrape(request.headers.get("accept", ""))
    return HttpResponse(body, headers={"content-type": kind, "cache-control": "no-store"})
