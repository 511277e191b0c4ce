"""Plain routes: what their endpoints get, and that a query that says nothing changes no answer."""

from collections.abc import AsyncIterator
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Request
from pydantic import Field
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import InvalidRequest
from service.settings.settings import Settings
from service.web.plain import PlainFirst, PlainRouter, Query
from tests.support.service.inside import Inside, serving
from tests.support.service.process import MODEL

IGNORED = {"api-version": "1"}
"""A query that says nothing."""


@pytest.fixture
async def service(redis_url: str) -> AsyncIterator[Inside]:
    async with serving(Settings.model_validate({"redis_url": redis_url, "archive_url": "none"})) as inside:
        yield inside


async def test_what_is_read_is_the_same_with_a_query_that_says_nothing(service: Inside) -> None:
    async with service.client() as client, service.http() as http:
        conversation = await client.conversations.create(metadata={"about": "counting"})
        made = await client.responses.create(model=MODEL, input="Count to 3.", conversation=conversation.id)
        for path in (
            f"/v1/responses/{made.id}",
            f"/v1/responses/{made.id}/input_items",
            "/v1/responses/resp_unknown",
            f"/v1/conversations/{conversation.id}",
            f"/v1/conversations/{conversation.id}/items",
            "/v1/models",
            f"/v1/models/{MODEL}",
            "/v1/models/unknown",
        ):
            plain, asked = await http.get(path), await http.get(path, params=IGNORED)
            assert (plain.status_code, plain.json()) == (asked.status_code, asked.json())
            assert plain.status_code == (404 if "unknown" in path else 200)


class Few(Query):
    limit: Annotated[int, Field(ge=1)] = 20
    include: list[str] | None = None


def _app() -> ASGIApp:
    router = PlainRouter("Tests")

    @router.route("GET", "/plain/{name}", "Plain", "plain", query=Few)
    async def plain(request: Request, query: Few, name: str) -> Response:
        return PlainTextResponse(f"{request.url.path} {name} {query.limit} {query.include}")

    @router.route("POST", "/plain", "Post", "post")
    async def post(request: Request) -> Response:
        return PlainTextResponse(request.method)

    app = FastAPI(redirect_slashes=False)
    app.router.routes += [each.under("/v1") for each in router.routes]
    first = PlainFirst(app)

    async def gate(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await first(scope, receive, send)
        except InvalidRequest as error:
            refusal = PlainTextResponse(f"{error.code} {error.param} {error.message}", error.status)
            await refusal(scope, receive, send)

    return gate


INVALID = "invalid_value limit Invalid value for 'limit': '0'. Input should be greater than or equal to 1."


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/plain/a%20b", 200, "/v1/plain/a b a b 20 None"),
        ("GET", "/plain/ab?limit=2&limit=3&include=x&include[]=y&api-version=1", 200, "/v1/plain/ab ab 3 ['x', 'y']"),
        ("GET", "/plain/ab?limit=0", 400, INVALID),
        ("GET", "/plain/ab?limits=1", 400, None),
        ("HEAD", "/plain/ab", 405, ""),
        ("GET", "/plain", 405, None),
        ("GET", "/plain/ab/", 404, None),
        ("POST", "/plain", 200, "POST"),
        ("POST", "/plain?limit=1", 400, None),
    ],
)
async def test_an_endpoint_gets_its_request_its_query_and_its_path(
    method: str, path: str, status: int, text: str | None
) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://test") as client:
        answer = await client.request(method, f"/v1{path}")
        assert answer.status_code == status
        assert text is None or answer.text == text
