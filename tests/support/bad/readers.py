"""Bad requests as the service's readers meet them: all that a body passes on its way to a plan, without HTTP.

What stands in a route is here in a few lines, so keep to its order. Never refuse anything here.
"""

import json
from contextlib import AsyncExitStack

from starlette.types import Message

from service.api.request import CreateRequest, read_count, read_create
from service.errors import ApiError
from service.responses.prepare import prepare
from service.responses.prompt.compaction import read_compact
from service.responses.refusals import refusal_of
from service.responses.service import Caller, Service
from service.web.body import read_body
from store.errors import StoreError
from tests.support.bad.requests import SMALL
from tests.support.bad.routes import COMPACT, COUNT
from tests.support.bad.table import CREATE, JSON, Bad, Table

READ: Table = {
    name: bad
    for name, bad in SMALL.items()
    if (bad.method, bad.kind) == ("POST", JSON) and bad.path in (CREATE, COUNT, COMPACT)
}
"""Those that a reader refuses. The others are refused for their path, their method, their query or their type."""

FEW = 3


def over_http() -> Table:
    """Those that are sent to a service: a few of each kind that a reader refuses, and all others."""
    kinds: dict[object, int] = {}
    sent: Table = {}
    for name, bad in SMALL.items():
        kind = (bad.path, bad.status, bad.code)
        kinds[kind] = kinds.get(kind, 0) + 1
        if name not in READ or kinds[kind] <= FEW:
            sent[name] = bad
    return sent


def content(bad: Bad) -> bytes | None:
    if callable(bad.body):
        return bad.body()
    return None if bad.body is None else json.dumps(bad.body).encode()


async def refusal(service: Service, bad: Bad) -> ApiError:
    """How a request is refused. Raises AssertionError where it isn't."""

    async def receive() -> Message:
        return {"type": "http.request", "body": content(bad) or b""}

    settings = service.settings
    try:
        body = await read_body(
            receive, None, limit=settings.max_body_bytes, seconds=settings.send_seconds, take=lambda size: None
        )
        async with AsyncExitStack() as resources:
            await prepare(service, Caller("default"), await _read(service, bad.path, body), resources)
            raise AssertionError("nothing refused it")
    except ApiError as error:
        return error
    except StoreError as error:
        return refusal_of(error)


async def _read(service: Service, path: str, body: bytes) -> CreateRequest:
    """A body as the route of a path reads it."""
    if path == COUNT:
        return read_count(body, store=True)
    return (read_compact if path == COMPACT else read_create)(body, store=True)
