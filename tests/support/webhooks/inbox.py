"""A receiver of webhooks on a real port, in the test's own loop: it keeps what it got and answers as it is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from tests.support.serving import stop

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Letter:
    """A request as it came; the names of its headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


class Inbox:
    """What came, and what is answered: `answers` in turn, and then 200."""

    def __init__(self, host: str, tls: bool) -> None:
        self.host = host
        self.port = 0
        self.letters: list[Letter] = []
        self.answers: list[Answer] = []
        self.under_way = self.most_under_way = 0
        self._scheme = "https" if tls else "http"

    @property
    def url(self) -> str:
        return self.at(self.host)

    def at(self, host: str) -> str:
        """Where it is, by another name for its host."""
        return f"{self._scheme}://{host}:{self.port}/hook"

    async def receive(self, request: web.Request) -> web.StreamResponse:
        """Keep a request, and answer it."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.letters.append(Letter(request.path_qs, headers, await request.read()))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return await self.answers.pop(0)(request) if self.answers else web.Response(text="thanks")
        finally:
            self.under_way -= 1


@asynccontextmanager
async def inbox(host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Inbox]:
    """One that listens for so long, by default on a free port."""
    box = Inbox(host, tls is not None)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", box.receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, host, port, ssl_context=tls).start()
    box.port = runner.addresses[0][1]
    try:
        yield box
    finally:
        await stop(runner)


def status(code: int, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


async def silence(_: web.Request) -> web.StreamResponse:
    """No answer at all, until whoever asked is gone."""
    await asyncio.Event().wait()
    raise AssertionError("nobody wakes it")


async def endless(request: web.Request) -> web.StreamResponse:
    """An answer that accepts, and never stops talking."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 1000)
        await asyncio.sleep(0.001)
