"""Routes: which one is found, how queries are read, and what is said of one that is not there."""

from types import SimpleNamespace
from typing import Annotated, Any, cast

import pytest
from pydantic import Field

from service.metrics.counters import make_metrics
from service.web.exchange import Exchange
from service.web.received import Received
from service.web.routing import Query, Router, Routes, read_query


class Few(Query):
    limit: Annotated[int, Field(ge=1)] = 20
    include: list[str] | None = None


async def endpoint(request: Received) -> None: ...


router = Router("Tests")
for methods, path in (
    ("GET HEAD", "/plain/{name}"),
    ("POST", "/plain"),
    ("POST", "/plain/those"),
    ("GET", "/{all:path}/x"),
):
    router.route(methods, path)(endpoint)
ROUTES = Routes(router.under("/v1"))


@pytest.mark.parametrize(
    ("method", "path", "template", "parts"),
    [
        ("GET", "/v1/plain/a b", "/v1/plain/{name}", {"name": "a b"}),
        ("HEAD", "/v1/plain/ab", "/v1/plain/{name}", {"name": "ab"}),
        ("POST", "/v1/plain/those", "/v1/plain/those", {}),
        ("GET", "/v1/a/b/x", "/v1/{all:path}/x", {"all": "a/b"}),
    ],
)
def test_a_route_is_found_by_method_and_path(method: str, path: str, template: str, parts: dict[str, str]) -> None:
    found = ROUTES.find(method, path)
    assert found.route is not None
    assert (found.route.method, found.template, found.parts) == (method, template, parts)


@pytest.mark.parametrize(
    ("method", "path", "allow", "advice"),
    [
        ("PUT", "/v1/plain", ["POST"], "It takes POST."),
        ("PUT", "/v1/plain/those", ["GET", "POST", "HEAD"], "It takes GET, POST and HEAD."),
        ("GET", "/v1/plain/ab/", [], "Did you mean /v1/plain/ab?"),
        ("POST", "/v1/v1/plain", [], "Did you mean /v1/plain?"),
        ("POST", "/chat/completions", [], "Each engine serves the Responses API: POST /v1/responses."),
        ("GET", "/v1/files", [], "Nothing is there; /openapi.json lists each path."),
    ],
)
def test_what_is_not_there_is_refused_with_a_way_out(method: str, path: str, allow: list[str], advice: str) -> None:
    refusal = ROUTES.missing(method, path)
    assert ROUTES.find(method, path).route is None
    assert (refusal.status, refusal.allow) == (405 if allow else 404, allow)
    assert refusal.message.startswith(f"Invalid URL ({method} {path}). ")
    assert refusal.message.endswith(advice)


def read(query: bytes, kind: type[Query]) -> tuple[Query, ...]:
    scope = {"type": "http", "path": "/v1/plain", "headers": [], "query_string": query}
    process: Any = SimpleNamespace(service=None)
    return read_query(Received(process, Exchange(scope, make_metrics(), "GET"), cast(Any, None)), kind)


@pytest.mark.parametrize(
    ("query", "known"),
    [
        (b"", Few()),
        (b"api-version=1", Few(include=[])),
        (b"limit=2&limit=3&include=x&include[]=y&api-version=1", Few(limit=3, include=["x", "y"])),
    ],
)
def test_a_query_is_read_as_a_model(query: bytes, known: Few) -> None:
    assert read(query, Few) == (known,)
