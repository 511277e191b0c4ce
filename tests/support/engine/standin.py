"""A stand-in for a vLLM server: its wire over an engine of ours, in the test's own loop.

It has a real port, and can be told to be another server (its traits), to die and come back, and to misbehave
(`instead`). tests/vllm/test_standin.py holds it to what a real server answers. Never teach it to be nicer than that.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from service.engine.port import Chunk, Engine, EngineError, EngineRefused, Finish, Generation, Sampling
from service.engine.vllm.wire import ABORT, Endpoint
from service.harmony.tokens import LAST_LEGAL, RETURN, encode
from tests.support.engine import chatting
from tests.support.engine.misbehaviour import Instead, misbehave, transport_of
from tests.support.engine.standin_wire import DONE, error_body, error_event, events, usage_event

BLOCK_TOKENS = 16
MAX_BODY_BYTES = 16 << 20
GUARDED = ("/v1", "/inference")
DISABLED = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
WORDS = ("yes", "hello")
"""What it says where a constraint leaves it a choice."""


@dataclass(frozen=True)
class Asked:
    """A request as it came; the names of its headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Standin:
    """The server. Its traits may be changed at any time; `asked` is what it was asked, probes too."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.model = engine.model.id
        self.context_tokens = engine.model.context_tokens
        self.endpoint = Endpoint.GENERATE
        """The better of the endpoints that it has."""
        self.older = False
        """Whether it has never heard of the other one."""
        self.api_key = ""
        self.defaults: dict[str, float] = {}
        """How it samples by default, as far as that isn't as everywhere."""
        self.tokens_an_event = 1
        self.instead: dict[str, Instead] = {}
        """Answers to give instead, by path; probes of an endpoint are answered as ever."""
        self.asked: list[Asked] = []
        self.running = 0
        self.port = 0
        self._cached: set[int] = set()
        self._ends: dict[str, asyncio.Event] = {}
        """Set to end a generation, by its id."""
        self._connections: set[asyncio.Transport] = set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def generations(self) -> list[Asked]:
        """The requests for a generation so far; a probe asks for nothing."""
        return [each for each in self.asked if each.path in (Endpoint.GENERATE, Endpoint.COMPLETIONS) and each.body]

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
        app.router.add_get("/health", _healthy)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions/render", self._render)
        app.router.add_post(Endpoint.GENERATE, self._generate)
        app.router.add_post(Endpoint.COMPLETIONS, self._complete)
        app.router.add_post(ABORT, self._abort)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/embeddings", self._embed)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def die(self) -> None:
        """Go away as a process that was killed; `start` brings it back with an empty cache."""
        for connection in self._connections:
            connection.abort()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None
        self._cached.clear()

    @web.middleware
    async def _receive(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """What happens to every request before its route is looked at."""
        self._connections.add(transport_of(request))
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.path, headers, msgspec.json.decode(body or b"{}"))
        self.asked.append(asked)
        guarded = self.api_key and request.path.startswith(GUARDED)
        if guarded and headers.get("authorization") != f"Bearer {self.api_key}":
            return _json({"error": "Unauthorized"}, 401)
        if request.path in self.instead and (asked.body or request.method == "GET"):
            return await misbehave(request, self.instead[request.path])
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        card = {
            "id": self.model,
            "object": "model",
            "created": 1,
            "owned_by": "vllm",
            "root": "/models",
            "parent": None,
        }
        return _json({"object": "list", "data": [{**card, "max_model_len": self.context_tokens, "permission": []}]})

    async def _render(self, request: web.Request) -> web.Response:
        if self.endpoint is not Endpoint.GENERATE:
            return self._disabled()
        usual = {"repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "min_p": 0.0}
        return _json([{"request_id": "cmpl-1", "token_ids": [0], "sampling_params": usual | self.defaults}])

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if self.endpoint is not Endpoint.GENERATE:
            return self._disabled()
        if "token_ids" not in body:
            return _error(400, "1 validation error: …", "Bad Request", "body.token_ids")
        return await self._sample(request, Endpoint.GENERATE, body, body["token_ids"], body["sampling_params"])

    async def _abort(self, request: web.Request) -> web.Response:
        """End generations; of an id that it doesn't know it says nothing."""
        if self.endpoint is not Endpoint.GENERATE:
            return self._disabled()
        for id in self.asked[-1].body["request_ids"]:
            if id in self._ends:
                self._ends[id].set()
        return web.Response()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if isinstance(body["prompt"], str):
            return self._unknown(body) or await chatting.complete(request, body, self._working)
        assert body["return_token_ids"]
        assert body["return_tokens_as_token_ids"]
        return await self._sample(request, Endpoint.COMPLETIONS, body, body["prompt"], body)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        return self._unknown(body) or await chatting.chat(request, body, self._working)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        return self._unknown(body) or chatting.embed(body)

    def _unknown(self, body: dict[str, Any]) -> web.Response | None:
        """That it doesn't serve the model, if it doesn't."""
        if body["model"] == self.model:
            return None
        message = f"The model `{body['model']}` does not exist. Valid aliases: {self.model}."
        return _error(404, message, "NotFoundError", "model")

    @contextmanager
    def _working(self) -> Iterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def _disabled(self) -> web.Response:
        return _json({"detail": "Not Found"}, 404) if self.older else _error(403, DISABLED, "PermissionDeniedError")

    async def _sample(
        self, request: web.Request, endpoint: Endpoint, body: dict[str, Any], prompt: list[int], asked: dict[str, Any]
    ) -> web.StreamResponse:
        """Answer a request for a generation. What is wrong with it one endpoint says behind a status of 200."""
        if (unknown := self._unknown(body)) is not None:
            return unknown
        generation = self._generation(request, body, prompt, asked)
        refusal = self._refusal(generation)
        if refusal and endpoint is Endpoint.COMPLETIONS and "vocabulary" not in refusal:
            return _error(400, refusal, "BadRequestError")
        stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        try:
            if refusal:
                raise EngineRefused(refusal)
            await self._stream(stream, endpoint, generation)
        except EngineError as error:
            await stream.write(error_event(error.status, str(error)))
        await stream.write(DONE)
        return stream

    async def _stream(self, stream: web.StreamResponse, endpoint: Endpoint, generation: Generation) -> None:
        cached, sampled = self._cache(generation), 0
        with self._working():
            async with aclosing(self._chunks(generation)) as chunks:
                async for chunk in chunks:
                    first = None if sampled else generation.prompt
                    await stream.write(b"".join(events(endpoint, chunk, self.tokens_an_event, first)))
                    sampled += len(chunk.tokens)
        await stream.write(usage_event(endpoint, len(generation.prompt), sampled, cached))

    def _generation(
        self, request: web.Request, body: dict[str, Any], prompt: list[int], asked: dict[str, Any]
    ) -> Generation:
        """What its engine is asked: the room is what the context leaves."""
        sampling = Sampling(
            max_tokens=max(1, min(asked["max_tokens"], self.context_tokens - len(prompt))),
            temperature=asked["temperature"],
            stop_ids=tuple(asked["stop_token_ids"]),
            logprobs=asked.get("logprobs"),
            structural_tag=asked.get("structured_outputs", {}).get("structural_tag"),
        )
        return Generation(request.headers["x-request-id"], prompt, sampling, cache_salt=body["cache_salt"])

    def _refusal(self, generation: Generation) -> str:
        """Why it won't do this; empty if it will."""
        if len(generation.prompt) > self.context_tokens:
            return f"The prompt is longer than the maximum model length of {self.context_tokens}."
        if max(generation.prompt) > LAST_LEGAL:
            return f"Token id {max(generation.prompt)} is out of vocabulary"
        try:
            _constrained(generation.sampling.structural_tag)
        except (ValueError, LookupError, TypeError, re.error) as error:
            return f"Invalid grammar specification: {error}"
        return ""

    def _cache(self, generation: Generation) -> int:
        """Keep the prompt's whole blocks; how many of its tokens were there. The last token is always computed."""
        key, found, prompt = hash(generation.cache_salt), 0, generation.prompt
        for end in range(BLOCK_TOKENS, len(prompt), BLOCK_TOKENS):
            key = hash((key, tuple(prompt[end - BLOCK_TOKENS : end])))
            found += BLOCK_TOKENS * (key in self._cached)
            self._cached.add(key)
        return found

    async def _chunks(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        if forced := _constrained(generation.sampling.structural_tag):
            yield Chunk(forced, Finish.STOP)
            return
        ended = self._ends[f"generate-tokens-{generation.id}"] = asyncio.Event()
        async with aclosing(self.engine.generate(generation)) as chunks:
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


@asynccontextmanager
async def standing_in(engine: Engine, **traits: Any) -> AsyncIterator[Standin]:
    """A stand-in that runs until the end of the block."""
    server = Standin(engine)
    for name, value in traits.items():
        setattr(server, name, value)
    await server.start()
    try:
        yield server
    finally:
        await server.die()


def _constrained(structural_tag: str | None) -> list[int]:
    """What it samples by itself under a constraint, from a sequence of tokens and regular expressions; nothing where
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


async def _healthy(request: web.Request) -> web.Response:
    return web.Response()


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def _error(status: int, message: str, type: str, param: str | None = None) -> web.Response:
    return _json(error_body(status, message, type, param), status)
