"""Probes and scrapes: `GET /health` says that the process is alive, `GET /ready` that it can serve, `GET /metrics` all
that is counted here, for Prometheus. The gate says who may scrape.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress

from fastapi import APIRouter
from starlette.responses import Response

from service import logs
from service.engine.port import EngineAway, EngineError
from service.web.entering import Open, Scraped
from service.web.errors import JsonResponse
from store.errors import LayoutMismatch, StoreReadOnly, StoreUnavailable, StoreUnconfirmed
from store.history.history import ConversationHistoryStore
from store.layout import Layout

router = APIRouter(tags=["Service"])
logger = logging.getLogger(__name__)


ALSO = ["HEAD", "OPTIONS"]
"""How probes of load balancers and uptime monitors ask besides."""


@router.api_route("/health", methods=ALSO, include_in_schema=False)
@router.get("/health", summary="Is the process alive?", operation_id="health")
async def health(_: Open) -> Response:
    """Always yes, without asking the store or the engine."""
    return JsonResponse({"status": "ok"})


@router.api_route("/ready", methods=ALSO, include_in_schema=False)
@router.get("/ready", summary="Can it serve?", operation_id="ready")
async def ready(request: Open) -> Response:
    """Checks the store, the engine and the archive. A 503 says which of them doesn't answer, that the store accepts no
    writes, or has more shards or another layout than this process knows, or that the archive is an older copy or
    another store's (`usable`). `engine_waits` says for how long no server has answered, for example while one loads
    its model.

    These don't make it a 503: a server's release without some features (`engine_lacks`), a paused worker, conversations
    that wait for the archive, an archive with a full disk, and a Redis that would evict keys itself (`store_evicts`).
    """
    service, background = request.service, request.process.background
    (store, (engine, waits), policy), findings = await asyncio.gather(
        asyncio.gather(
            _state(service.store, background.layout), _engine(service.engine.check()), _policy(service.store)
        ),
        asyncio.gather(*(check.look() for check in service.checks)),
    )
    worker = background.state
    usable = all(finding.usable for finding in findings)
    ready = store == engine == "ok" and worker != "broken" and usable
    found: dict[str, object] = {"status": "ok" if ready else "unavailable", "store": store, "engine": engine}
    releases = service.engine.releases()
    also = {
        "store_evicts": policy and f"maxmemory-policy is {policy}; set it to noeviction",
        "engine_waits": waits,
        "engine_releases": sorted(releases) or None,
        "engine_lacks": sorted({advice for advice in releases.values() if advice}) or None,
        "worker": worker,
        **{check.name: finding.shown for check, finding in zip(service.checks, findings, strict=True)},
    }
    found |= {name: said for name, said in also.items() if said is not None}
    return JsonResponse(found, 200 if ready else 503)


async def _policy(store: ConversationHistoryStore) -> str | None:
    """The policy by which the store's server deletes keys by itself; None where it does not, or nobody knows."""
    with suppress(StoreUnavailable):
        return await store.evicts() or None
    return None


async def _state(store: ConversationHistoryStore, layout: Layout) -> str:
    """The store in a word. Its loss is logged when it happens, and not again here (service/process.py)."""
    try:
        await layout.check(limits=False)  # other limits than the store's keep nobody from answering
        await store.check()
    except StoreReadOnly:
        return "read-only"
    except LayoutMismatch:
        return "mismatch"
    except StoreUnconfirmed:
        return "unconfirmed"
    except StoreUnavailable:
        return "unavailable"
    return "ok"


async def _engine(check: Coroutine[None, None, None]) -> tuple[str, str | None]:
    """The engine in a word, and for how long it has been away; the reason is for the log, as probes need no key."""
    try:
        await check
    except EngineError as error:
        logs.event(logger, logging.WARNING, "not ready", reason=str(error))
        waits = "no server has answered for {:,.0f} s; a server answers once its model is loaded"
        return "unavailable", waits.format(error.seconds) if isinstance(error, EngineAway) else None
    return "ok", None


@router.get("/metrics", summary="Metrics for Prometheus", operation_id="metrics")
async def metrics(request: Scraped) -> Response:
    """In Prometheus's text format, or as OpenMetrics where Accept names it; docs/metrics.md lists them."""
    body, kind = await request.process.exposition.scrape(request.header(b"accept"))
    return Response(body, headers={"content-type": kind, "cache-control": "no-store"})
