"""What stand-ins for servers have in common: a real port over an engine of ours, in the test's own loop.

One can be told to die and come back, and to misbehave (`instead`). What a kind of server says is in a file of its own.
"""

import asyncio
import json
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from service.engine.port import Chunk, Engine, Finish, Generation
from service.engine.servers.kind import ServerKind
from service.harmony.tokens import RETURN, encode
from tests.support.engine.generating import generated
from tests.support.engine.misbehaviour import Instead, misbehave, transport_of
from tests.support.serving import stop

MAX_BODY_BYTES = 16 << 20

BLOCK_TOKENS = 16
"""How many tokens of a prompt are cached together."""

WORDS = ("yes", "hello")
"""What one says where a constraint leaves it a choice."""


@dataclass(frozen=True)
class Asked:
    """A request as it came; the names of its headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Standing(ABC):
    """A stand-in. Its traits may be changed at any time; `asked` is what it was asked, probes too."""

    guarded: tuple[str, ...] = ("/",)
    """What the paths begin with that ask for the key."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.model = engine.model.id
        self.context_tokens = engine.model.context_tokens
        self.api_key = ""
        self.instead: dict[str, Instead] = {}
        """Answers to give instead, by path; probes of an endpoint are answered as ever."""
        self.asked: list[Asked] = []
        self.running = 0
        self.host = "127.0.0.1"
        self.port = 0
        self._cached = set[tuple[str | None, bytes]]()
        """The prompts that were seen, block by block: each with its salt and all that was before it."""
        self._ends: dict[str, asyncio.Event] = {}
        """Set to end a generation, by its id."""
        self._connections: set[asyncio.Transport] = set()
        self._runner: web.AppRunner | None = None

    @property
    @abstractmethod
    def kind(self) -> ServerKind:
        """What asks such a server."""

    @abstractmethod
    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Say what it answers."""

    def forget(self) -> None:
        """Lose what is cached."""
        self._cached.clear()

    def caching(self, generation: Generation) -> int:
        """Keep the prompt's whole blocks; how many of its tokens were kept before. Its last one never counts."""
        ids, last, known = array("I", generation.prompt), b"", 0
        for end in range(BLOCK_TOKENS, len(ids) + 1, BLOCK_TOKENS):
            last = blake2b(last + ids[end - BLOCK_TOKENS : end].tobytes()).digest()
            block = (generation.cache_salt, last)
            if block in self._cached and known == end - BLOCK_TOKENS and end < len(ids):
                known = end
            self._cached.add(block)
        return known

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections it was asked over so far."""
        return len(self._connections)

    @property
    def open_connections(self) -> int:
        """How many of them are still open."""
        return sum(not each.is_closing() for each in self._connections)

    async def start(self) -> None:
        """Listen, on the same port as before."""
        app = web.Application(middlewares=[self._receive], client_max_size=MAX_BODY_BYTES)
        self.add_routes(app.router)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def die(self) -> None:
        """Go away as a process that was killed; `start` brings it back with an empty cache."""
        for connection in self._connections:
            connection.abort()
        if self._runner is not None:
            await stop(self._runner)
        self._runner = None
        self.forget()

    @web.middleware
    async def _receive(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """What happens to every request before its route is looked at."""
        self._connections.add(transport_of(request))
        headers = {name.lower(): value for name, value in request.headers.items()}
        form = headers.get("content-type", "").startswith("multipart/form-data")
        fields = await form_of(request) if form else msgspec.json.decode(await request.read() or b"{}")
        asked = Asked(request.path, headers, fields)
        self.asked.append(asked)
        guarded = self.api_key and request.path.startswith(self.guarded)
        if guarded and headers.get("authorization") != f"Bearer {self.api_key}":
            return as_json({"error": "Unauthorized"}, 401)
        if request.path in self.instead and (asked.body or request.method == "GET"):
            return await misbehave(request, self.instead[request.path])
        return await handler(request)

    @contextmanager
    def working(self) -> Iterator[None]:
        """What is inside counts as running."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def end(self, key: str) -> None:
        """End a generation; of one that it doesn't know it says nothing."""
        if key in self._ends:
            self._ends[key].set()

    async def chunks(self, generation: Generation, key: str) -> AsyncGenerator[Chunk, None]:
        """What its engine samples, or the constraint leaves it, until `end` is called."""
        if forced := constrained(generation.sampling.structural_tag):
            yield Chunk(forced, Finish.STOP)
            return
        ended = self._ends[key] = asyncio.Event()
        async with aclosing(generated(self.engine, generation)) as chunks:
            while True:
                end, following = asyncio.ensure_future(ended.wait()), asyncio.ensure_future(anext(chunks, None))
                try:
                    await asyncio.wait([end, following], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    end.cancel()
                    if not following.done():
                        following.cancel()
                        await asyncio.wait([following])
                if ended.is_set():
                    yield Chunk([], Finish.ABORT)
                    return
                if (chunk := following.result()) is None:
                    return
                yield chunk


async def form_of(request: web.Request) -> dict[str, Any]:
    """A form's fields, lists where names end with `[]`; of a file its name, type and bytes."""
    fields: dict[str, Any] = {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            fields[name] = (value.filename, value.content_type, value.file.read())
        elif name.endswith("[]"):
            fields.setdefault(name, []).append(value)
        else:
            assert name not in fields, name
            fields[name] = value
    return fields


S = TypeVar("S", bound=Standing)


@asynccontextmanager
async def standing(server: S, **traits: Any) -> AsyncIterator[S]:
    """A stand-in that runs until the end of the block."""
    for name, value in traits.items():
        setattr(server, name, value)
    await server.start()
    try:
        yield server
    finally:
        await server.die()


def constrained(structural_tag: str | None) -> list[int]:
    """What one samples by itself under a constraint, from a sequence of tokens and regular expressions; nothing where
    there is none, or one that its engine has to know.
    """
    if structural_tag is None:
        return []
    wanted = json.loads(structural_tag)["format"]
    if wanted["type"] != "sequence" or any(each["type"] not in ("token", "regex") for each in wanted["elements"]):
        return []
    said: list[int] = []
    for element in wanted["elements"]:
        if element["type"] == "token":
            said.append(element["token"])
        else:
            said += _fitting(element["pattern"])
    return [*said, RETURN]


def _fitting(pattern: str) -> list[int]:
    for word in WORDS:
        if re.fullmatch(pattern, word):
            return encode(word)
    raise LookupError(f"nothing to say fits {pattern}")


async def streaming(request: web.Request) -> web.StreamResponse:
    """The head of a stream of events, sent."""
    stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    stream.enable_chunked_encoding()
    await stream.prepare(request)
    return stream


async def healthy(request: web.Request) -> web.Response:
    """An answer that says no more than that it is well."""
    return web.Response()


def as_json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
