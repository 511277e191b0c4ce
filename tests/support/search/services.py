"""The services that search, as their documentation has their wire, and some pages: in this process, on a free port.

Words that are searched for say how they behave: `http 500`, `html`, `types`, `huge`, `redirect`, `none`; else
they find two pages, and some whose addresses can't be opened.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.support.serving import stop

KEY = "sk-search"
FOUND = (
    ("https://tides.example/brest", "Tides in Brest", "High & low water."),
    ("https://port.example/fr/", "The <port>", "Quays."),
    ("javascript:alert(1)", "no page", "x"),
    ("http://evil.example\\@port.example/", "no page of port.example", "x"),
    (None, None, None),
)


class Services:
    """The services at `url`, and the requests that came."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []

    def note(self, request: web.Request, body: dict[str, Any]) -> None:
        self.asked.append({"path": request.path, "query": dict(request.query), "body": body})

    def handled(self, text: str, answer: dict[str, Any]) -> web.StreamResponse:
        """What a service answers to a search for this text."""
        bad = {
            "http 500": web.Response(status=500, text="secret inside"),
            "html": web.Response(text="<html>", content_type="text/html"),
            "types": web.json_response({"results": "none", "web": 1}),
            "huge": web.Response(body=b'{"results": [' + b" " * (3 << 20) + b"]}", content_type="application/json"),
            "redirect": web.Response(status=302, headers={"location": "http://169.254.169.254/"}),
            "none": web.json_response({}),
        }
        return bad.get(text) or web.json_response(answer)


def _application(services: Services) -> web.Application:
    async def searxng(request: web.Request) -> web.StreamResponse:
        services.note(request, {})
        if request.query.get("format") != "json":
            return web.Response(status=403)
        found = [{"url": url, "title": title, "content": said, "engine": "x"} for url, title, said in FOUND]
        return services.handled(request.query["q"], {"query": "q", "results": found, "answers": []})

    async def brave(request: web.Request) -> web.StreamResponse:
        services.note(request, {})
        if request.headers.get("X-Subscription-Token") != KEY or int(request.query["count"]) > 20:
            return web.Response(status=422)
        found = [
            {
                "url": url,
                "title": title and title.replace("<", "&lt;"),
                "description": said and said.replace("&", "&amp;"),
            }
            for url, title, said in FOUND
        ]
        return services.handled(request.query["q"], {"type": "search", "web": {"type": "search", "results": found}})

    async def tavily(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        services.note(request, body)
        if request.headers.get("Authorization") != f"Bearer {KEY}" or body["max_results"] > 20:
            return web.Response(status=401)
        found = [{"url": url, "title": title, "content": said, "score": 0.5} for url, title, said in FOUND]
        return services.handled(body["query"], {"query": "q", "results": found, "images": []})

    async def exa(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        services.note(request, body)
        if request.headers.get("x-api-key") != KEY:
            return web.Response(status=401)
        found = [{"id": url, "url": url, "title": title, "text": said} for url, title, said in FOUND]
        return services.handled(body["query"], {"requestId": "1", "results": found})

    application = web.Application()
    application.router.add_get("/searxng/search", searxng)
    application.router.add_get("/brave/res/v1/web/search", brave)
    application.router.add_post("/tavily/search", tavily)
    application.router.add_post("/exa/search", exa)
    return application


@asynccontextmanager
async def served(application: web.Application) -> AsyncIterator[str]:
    """An application at its URL until the end of the block."""
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await stop(runner)


@asynccontextmanager
async def search_services() -> AsyncIterator[Services]:
    """The services until the end of the block."""
    services = Services()
    async with served(_application(services)) as url:
        services.url = url
        yield services
