"""Routes: how queries are read, what is said of a path that is not there, and what who tries `GET /` finds."""

import html
import posixpath
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi import Query as InQuery
from httpx import ASGITransport, AsyncClient
from pydantic import Field

from service.build import this_build
from service.web.nowhere import Nowhere
from service.web.queries import Query
from tests.support.service.process import ServiceProcess


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


RESPONSES = "Each engine serves the Responses API: POST /v1/responses."
REMEDY = "Set HARMONIUM_CHATS=remember to have chat completions and messages answered here."


@pytest.mark.parametrize(
    ("method", "path", "allow", "advice"),
    [
        ("PUT", "/v1/plain", ["POST"], "It takes POST."),
        ("PUT", "/v1/plain/those", ["GET", "POST", "HEAD"], "It takes GET, POST and HEAD."),
        ("GET", "/v1/plain/ab/", [], "Did you mean /v1/plain/ab?"),
        ("POST", "/v1/v1/plain", [], "Did you mean /v1/plain?"),
        ("POST", "/chat/completions", [], f"{RESPONSES} {REMEDY}"),
        ("POST", "/v1/messages/count_tokens", [], f"{RESPONSES} {REMEDY}"),
        ("POST", "/v1/embeddings", [], RESPONSES),
        ("POST", "/v1/completions", [], RESPONSES),
        ("GET", "/v1/files", [], "There is no such path; /openapi.json lists all."),
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


def test_a_program_learns_the_name_the_version_and_where_to_go(service: ServiceProcess) -> None:
    http = service.http()
    answer = http.get("/")
    assert answer.headers["content-type"] == "application/json"
    assert (answer.json()["name"], answer.json()["version"]) == ("harmonium", this_build().version)
    assert answer.json()["base_urls"]["openai"] == "/v1"
    assert answer.json()["engine"] == "demo"
    links = answer.json()["links"]
    assert {path: http.get(path).status_code for path in links.values()} == dict.fromkeys(links.values(), 200)


def test_a_line_break_in_a_path_is_refused_as_any_other(start: Callable[..., ServiceProcess]) -> None:
    service = start(api_keys="acme:key")
    for path in ("/a%0Ab", "/v1/models/a%0Ab", "/v1/responses/a%0A/b", "/docs/a%0Ab", "/%0D%0Aa"):
        refused, gone = [httpx.get(service.url + path, headers={"x-api-key": key}) for key in ("wrong", "key")]
        assert (path, refused.status_code, gone.status_code) == (path, 401, 404)
        assert gone.json()["error"]["message"].startswith("Invalid URL (GET /")


def test_no_browser_guesses_what_an_answer_is_nor_shows_a_page_within_another(service: ServiceProcess) -> None:
    for path in ("/", "/docs", "/v1/models", "/v1/nowhere", "/metrics"):
        assert service.http().get(path).headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in service.http().get("/docs").headers["content-security-policy"]


def test_documents_are_there_as_markdown_with_a_list_of_them_and_no_link_of_theirs_is_dead(
    service: ServiceProcess,
) -> None:
    http = service.http()
    index = http.get("/docs/llms.txt")
    assert index.headers["content-type"] == "text/plain; charset=utf-8"
    listed = re.findall(r"^- \[([^\]]+)\]\((/docs/[^)]+)\)$", index.text, re.MULTILINE)
    assert {"/docs/api.md", "/docs/decisions/README.md"} <= {path for _, path in listed}
    for title, path in listed:
        document = http.get(path)
        assert document.headers["content-type"] == "text/markdown; charset=utf-8"
        assert document.text.startswith(f"# {title}\n")
        for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.text):
            assert posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) in {each for _, each in listed}
    for path in ("/docs/nothing.md", "/docs/../README.md", "/docs/%2e%2e/README.md"):
        assert http.get(path).status_code == 404


def test_a_browser_gets_each_document_as_a_page_whose_links_lead_somewhere_and_the_list_of_all(
    service: ServiceProcess,
) -> None:
    http, browser = service.http(), {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    names = re.findall(r"\((/docs/[^)]+)\)", http.get("/docs/llms.txt").text)
    pages = {name: http.get(name, headers=browser) for name in names}
    ids = {name: set(re.findall(r'<h\d id="([^"]+)"', page.text)) for name, page in pages.items()}
    assert {"redis", "proxies"} <= {id for found in ids.values() for id in found}
    for name, page in pages.items():
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["vary"] == "accept"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "<h1" in page.text
        for link in re.findall(r'href="(?!https?://)([^"]+)"', page.text):
            path, _, anchor = link.partition("#")
            there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            assert there == "/docs" or there in pages, f"{name}: {link}"
            assert not anchor or anchor in ids[there], f"{name}: {link}"
    listed = set(re.findall(r'href="(/docs/[a-z]+\.md)"', http.get("/docs").text))
    assert listed == {name for name in names if name.count("/") == 2} - {"/docs/README.md"}


def test_a_browser_gets_a_page_that_loads_nothing_from_elsewhere(service: ServiceProcess) -> None:
    page = service.http().get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["vary"] == "accept"
    assert f"<h1>harmonium {this_build().version}</h1>" in page.text
    assert f'base_url="{service.url}/v1"' in page.text
    assert "The demo engine answers here; it is not a real model." in page.text
    example = html.unescape(re.findall("<pre>(.*?)</pre>", page.text, re.DOTALL)[0])
    assert max(map(len, example.splitlines())) <= 60, "a line is out of its box"
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n2\n3\n"
    assert set(re.findall(r'(?:href|src)="([^"]+)"', page.text)) == set(
        service.http().get("/").json()["links"].values()
    )
