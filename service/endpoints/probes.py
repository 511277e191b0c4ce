"""What a process answers over HTTP that serves no API: `harmonium worker` on WORKER_PORT, for probes and scrapes.

The same endpoints behind the same gate as the service's, and nothing else. It starts and stops nothing: the store and
the engine that it is given belong to the worker.
"""

from functools import partial

from fastapi import FastAPI
from starlette.types import ASGIApp

from service.admission import Admission
from service.app import HANDLERS
from service.auth import Keyring
from service.background import Background, read_shards
from service.context import Service
from service.endpoints import health, metrics
from service.exposition import Exposition
from service.gate import Gate

MAX_REQUESTS = 16
"""What is worked on at once of all that is neither a probe nor a scrape: it is only told that it isn't there."""


def probe_app(service: Service, background: Background) -> ASGIApp:
    """`/health`, `/ready` and `/metrics` of a worker: of the store and the engine in `service`, and what it counted."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.state.service = service
    app.state.background = background
    app.state.exposition = Exposition(service.metrics, partial(read_shards, service))
    app.include_router(health.router)
    app.include_router(metrics.router)
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
    admission = Admission(service.metrics.refused, requests=MAX_REQUESTS, followers=0)
    settings = service.settings
    return Gate(app, Keyring(settings.api_keys), admission, service.metrics, metrics_key=settings.metrics_key)
