"""The way in to a route, as FastAPI's dependencies: who calls, and the place that a request has while it is served.

    Aside    with a key, and without a wait: it asks no model
    Asks     with a key, once there is a slot: it asks a model, or queues what does
    Scraped  with the operator's key for metrics
    Open     without a key: a probe, which learns only whether the service works, or a page that is the same for all

Of each the endpoint gets a Received. The gate gives a place up once the answer is sent.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.types import Scope

from service.entrance import WrongKey
from service.responses.refusals import refusal_of
from service.web import auth
from service.web.auth import check_scraper, refuse_foreign
from service.web.exchange import Admitted, Exchange, admit
from service.web.http_protocol import WHOSE
from service.web.queries import refuse_unknown
from service.web.received import EXCHANGE, Process, Received
from store.errors import StoreError


def process_of(scope: Scope) -> Process:
    return scope["app"].state.process


async def identify(process: Process, exchange: Exchange, method: str) -> None:
    """Identify the caller, also later on, where its connection stays open. Raises ApiError."""
    try:
        exchange.entry = await auth.enter(process.entrance, exchange.headers, method, exchange.scope["path"])
        exchange.tenant = exchange.entry.tenant
        exchange.scope.setdefault("extensions", {})[WHOSE] = exchange.tenant
    except StoreError as error:
        raise refusal_of(error) from error
    except WrongKey:
        process.entrance.wrong_key(exchange.request_id, (exchange.scope.get("client") or ("",))[0])
        raise


async def enter(scope: Scope, *, uploads: bool = False, body: bool = True) -> Exchange:
    """A request whose tenant may enter, with a form where it `uploads`, anything without a `body`. Raises ApiError."""
    process, exchange = process_of(scope), scope[EXCHANGE]
    if process.entrance.keys.open:
        refuse_foreign(exchange.method if body else "", exchange.headers, uploads=uploads)
    await identify(process, exchange, exchange.method)
    exchange.trace(process.service.tracer)
    return exchange


async def aside(process: Process, exchange: Exchange) -> Admitted:
    """The place of a request that waits for nobody. Raises ApiError 503."""
    work = await process.service.tenants.pacing.begin(exchange.tenant)
    try:
        return Admitted(exchange, process.admission.slot(exchange.tenant), work)
    except BaseException:
        work.close()
        raise


async def in_line(process: Process, exchange: Exchange) -> Admitted:
    """The place of a request for a response, once it is its turn. Raises ApiError, ClientGone."""
    return await admit(exchange, process.admission, process.service.tenants.pacing)


def way_in(
    admit: Callable[[Process, Exchange], Awaitable[Admitted]], *, uploads: bool = False
) -> Callable[[Request], Awaitable[Received]]:
    """The dependency of routes whose requests have a place, for which they wait in `admit`."""

    async def enter_by_it(request: Request) -> Received:
        scope = request.scope
        process, route = process_of(scope), scope["route"]
        exchange = await enter(scope, uploads=uploads)
        place = await exchange.take(await admit(process, exchange))
        exchange.endpoint = route.path
        if scope["query_string"] and not reads_query(route):
            refuse_unknown(request.query_params, ())
        return Received(process, exchange, request.receive, place)

    return enter_by_it


def enter_open(scope: Scope) -> Exchange:
    """A request that needs no key. Raises ApiError 403 for one of a page of another host, where there are no keys."""
    exchange, keys = scope[EXCHANGE], process_of(scope).entrance.keys
    exchange.is_open = True
    if keys.open:
        refuse_foreign("", exchange.headers)
    return exchange


async def anybody(request: Request) -> Received:
    """A request that needs no key. Raises ApiError 403."""
    exchange = enter_open(request.scope)
    exchange.endpoint = request.scope["route"].path
    return Received(process_of(request.scope), exchange, request.receive)


async def scraper(received: Annotated[Received, Depends(anybody)]) -> Received:
    check_scraper(received.process.entrance.keys, received.exchange.headers)
    return received


def is_open(route: APIRoute) -> bool:
    return any(each.call is anybody for each in _dependants(route))


def reads_query(route: APIRoute) -> bool:
    return any(each.query_params for each in _dependants(route)) or "parameters" in (route.openapi_extra or {})


def _dependants(route: APIRoute) -> list[Dependant]:
    found = [route.dependant]
    for each in found:
        found += each.dependencies
    return found


Aside = Annotated[Received, Depends(way_in(aside))]
Asks = Annotated[Received, Depends(way_in(in_line))]
UploadsAside = Annotated[Received, Depends(way_in(aside, uploads=True))]
UploadsAsk = Annotated[Received, Depends(way_in(in_line, uploads=True))]
Open = Annotated[Received, Depends(anybody)]
Scraped = Annotated[Received, Depends(scraper)]
