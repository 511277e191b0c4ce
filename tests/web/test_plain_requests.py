"""Requests without a query: FastAPI does not look for what their endpoint gets, and they are answered as any others."""

from collections.abc import AsyncIterator
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, Query, Request
from fastapi.routing import APIRouter
from starlette.responses import PlainTextResponse, Response

from service.settings.settings import Settings
from service.web.routing.direct import Direct
from service.web.routing.query import StrictRoute
from tests.support.service.inside import Inside, serving
from tests.support.service.process import MODEL

IGNORED = {"api-version": "1"}
"""A query that says nothing: with it FastAPI finds out what an endpoint gets."""


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


def _app() -> Direct:
    router = APIRouter(route_class=StrictRoute)

    async def wanted(include: Annotated[list[str] | None, Query()] = None) -> frozenset[str]:
        return frozenset(include or ())

    def added(more: int = 2) -> int:
        return more

    @router.get("/plain/{name}")
    async def plain(
        request: Request,
        name: str,
        includes: Annotated[frozenset[str], Depends(wanted)],
        more: Annotated[int, Depends(added)],
        limit: Annotated[int, Query(ge=1)] = 20,
    ) -> Response:
        return PlainTextResponse(f"{request.url.path} {name} {sorted(includes)} {more} {limit}")

    @router.get("/number/{number}")
    async def numbered(number: int) -> Response:
        return PlainTextResponse(f"{number + 1}")

    @router.get("/required")
    async def required(limit: int) -> Response:
        return PlainTextResponse(f"{limit}")

    @router.get("/value")
    async def value() -> dict[str, int]:
        return {"one": 1}

    app = FastAPI()
    app.include_router(router, prefix="/v1")
    return Direct(app, [("/v1", router)], {})


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/plain/a%20b", 200, "/v1/plain/a b a b [] 2 20"),
        ("/plain/ab?limit=3&include=x&more=4", 200, "/v1/plain/ab ab ['x'] 4 3"),
        ("/plain/ab?limit=0", 422, None),
        ("/number/1", 200, "2"),
        ("/number/one", 422, None),
        ("/required", 422, None),
        ("/required?limit=3", 200, "3"),
        ("/value", 200, '{"one":1}'),
    ],
)
async def test_an_endpoint_gets_what_it_asks_for(path: str, status: int, text: str | None) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://test") as client:
        for _ in range(2):
            answer = await client.get(f"/v1{path}")
            assert answer.status_code == status
            assert text is None or answer.text == text
