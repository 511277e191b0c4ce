"""`GET /metrics`: everything that is counted here, for Prometheus. The gate says who may ask."""

from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.metrics.scrape import Exposition

router = APIRouter(tags=["Service"])


@router.get("/metrics", summary="Metrics for Prometheus", operation_id="metrics")
async def metrics(request: Request) -> HttpResponse:
    """In Prometheus's text format, or as OpenMetrics where Accept names it; docs/metrics.md lists them."""
    exposition = cast(Exposition, request.app.state.exposition)
    body, kind = await exposition.scrape(request.headers.get("accept", ""))
    return HttpResponse(body, headers={"content-type": kind, "cache-control": "no-store"})
