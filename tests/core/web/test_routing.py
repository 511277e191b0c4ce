"""Routes: how queries are read, and what is said of a path that is not there."""

from typing import Annotated

import pytest
from fastapi import APIRouter, FastAPI
from fastapi import Query as InQuery
from httpx import ASGITransport, AsyncClient
from pydantic import Field

from service.web.nowhere import Nowhere
from service.web.queries import Query


class Few(Query):
    limit: Annotated[int, Field(ge=1)] = 20
    include: list[str] | None = None


router = APIRouter(prefix="/v1")


@router.get("/plain/{name}")
@router.head("/plain/{name}")
async def few(query: Annotated[Few, InQuery()], name: str) -> Few:
    return query


@router.post("/plain")
@router.post("/plain/those")
@router.get("/{all:path}/x")
async def endpoint() -> None: ...


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
    refusal = Nowhere([router]).refusal(method, path)
    assert (refusal.status, list(refusal.allow)) == (405 if allow else 404, allow)
    assert refusal.message.startswith(f"Invalid URL ({method} {path}). ")
    assert refusal.message.endswith(advice)


@pytest.mark.parametrize(
    ("query", "known"),
    [
        ("", Few()),
        ("api-version=1", Few()),
        ("limit=2&limit=3&include=x&include[]=y&api-version=1", Few(limit=3, include=["x", "y"])),
        ("include[]=x&include[]=y", Few(include=["x", "y"])),
    ],
)
async def test_a_query_is_read_as_a_model(query: str, known: Few) -> None:
    app = FastAPI()
    app.include_router(router)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as http:
        assert (await http.get(f"/v1/plain/a?{query}")).json() == known.model_dump()
