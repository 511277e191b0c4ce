"""A stand-in for a vLLM server: its wire over an engine of ours, in the test's own loop.

It can be told to be another server (its traits), and what any stand-in can (standing.py). core/vllm/test_standin.py
holds it to what a real server answers. Never teach it to be nicer than that.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from aiohttp import web

from service.engine.port import Engine, EngineError, EngineRefused, Generation, Sampling
from service.engine.vllm.servers import ABORT, TokensEndpoint, Vllm
from service.harmony.tokens import LAST_LEGAL
from tests.support.engine import chatting
from tests.support.engine.standin_wire import DONE, error_body, error_event, events, metrics_page, usage_event
from tests.support.engine.standing import Asked, Standing, as_json, constrained, healthy, standing, streaming

DISABLED = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."


class Standin(Standing):
    """The server."""

    guarded = ("/v1", "/inference")

    def __init__(self, engine: Engine, endpoint: TokensEndpoint = TokensEndpoint.GENERATE) -> None:
        super().__init__(engine)
        self.endpoint = endpoint
        """The better of the endpoints that it has."""
        self.version = ""
        """The version that it tells; a router tells none."""
        self.rust: str | None = None
        """The version of its frontend in Rust, where that speaks."""
        self.defaults: dict[str, float] = {}
        """How it samples by default, as far as that isn't as everywhere."""
        self.tokens_an_event = 1
        self.room = 0
        """For how many tokens its cache has room; 0 is not told."""
        self.others: tuple[int, int] = (0, 0)
        """How many generations of others run there, and how many wait."""
        self.compute_seconds = 0.0
        """How long it takes for a token of a prompt that isn't cached; it computes one prompt after the other."""
        self._computing = asyncio.Lock()

    @property
    def kind(self) -> Vllm:
        return Vllm()

    @property
    def generations(self) -> list[Asked]:
        """The requests for a generation so far; a probe asks for nothing."""
        return [
            each
            for each in self.asked
            if each.path in (TokensEndpoint.GENERATE, TokensEndpoint.COMPLETIONS) and each.body
        ]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/health", healthy)
        router.add_get("/version", self._version)
        router.add_get("/v1/models", self._models)
        router.add_get("/metrics", self._metrics)
        router.add_post("/v1/completions/render", self._render)
        router.add_post(TokensEndpoint.GENERATE, self._generate)
        router.add_post(TokensEndpoint.COMPLETIONS, self._complete)
        router.add_post(ABORT, self._abort)
        router.add_post("/v1/chat/completions", self._chat)
        router.add_post("/v1/embeddings", self._embed)
        router.add_post("/v1/messages", self._messages)
        router.add_post("/v1/audio/transcriptions", self._transcribe)
        for path in chatting.TOLD:
            router.add_post(path, self._told)

    async def _metrics(self, request: web.Request) -> web.Response:
        running, waiting = self.others
        return web.Response(body=metrics_page(self.running + running, waiting, 0.0, self.room))

    async def _version(self, request: web.Request) -> web.Response:
        told = {"version": self.version} | ({"rust_frontend_version": self.rust} if self.rust else {})
        return as_json(told) if self.version else as_json({"detail": "Not Found"}, 404)

    async def _models(self, request: web.Request) -> web.Response:
        card = {
            "id": self.model,
            "object": "model",
            "created": 1,
            "owned_by": "vllm",
            "root": "/models",
            "parent": None,
        }
        return as_json({"object": "list", "data": [{**card, "max_model_len": self.context_tokens, "permission": []}]})

    async def _render(self, request: web.Request) -> web.Response:
        if self.endpoint is not TokensEndpoint.GENERATE:
            return self._disabled()
        usual = {"repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0, "min_p": 0.0}
        return as_json([{"request_id": "cmpl-1", "token_ids": [0], "sampling_params": usual | self.defaults}])

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if self.endpoint is not TokensEndpoint.GENERATE:
            return self._disabled()
        if "token_ids" not in body:
            return _error(400, "1 validation error: …", "Bad Request", "body.token_ids")
        return await self._sample(request, TokensEndpoint.GENERATE, body, body["token_ids"], body["sampling_params"])

    async def _abort(self, request: web.Request) -> web.Response:
        """End generations; of an id that it doesn't know it says nothing."""
        if self.endpoint is not TokensEndpoint.GENERATE:
            return self._disabled()
        for id in self.asked[-1].body["request_ids"]:
            self.end(id)
        return web.Response()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if isinstance(body["prompt"], str):
            return self._unknown(body) or await chatting.complete(request, body, self.working)
        assert body["return_token_ids"]
        assert body["return_tokens_as_token_ids"]
        return await self._sample(request, TokensEndpoint.COMPLETIONS, body, body["prompt"], body)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        return self._unknown(body) or await chatting.chat(request, body, self.working)

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        return self._unknown(body) or chatting.embed(body)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        return self._unknown(body) or await chatting.messages(request, body, self.working)

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        return self._unknown(body) or await chatting.transcribe(request, body)

    async def _told(self, request: web.Request) -> web.StreamResponse:
        return self._unknown(self.asked[-1].body) or chatting.told(request.path)

    def _unknown(self, body: dict[str, Any]) -> web.Response | None:
        """That it doesn't serve the model, if it doesn't."""
        if body["model"] == self.model:
            return None
        message = f"The model `{body['model']}` does not exist. Valid aliases: {self.model}."
        return _error(404, message, "NotFoundError", "model")

    def _disabled(self) -> web.Response:
        return _error(403, DISABLED, "PermissionDeniedError")

    async def _sample(
        self,
        request: web.Request,
        endpoint: TokensEndpoint,
        body: dict[str, Any],
        prompt: list[int],
        asked: dict[str, Any],
    ) -> web.StreamResponse:
        """Answer a request for a generation. What is wrong with it one endpoint says behind a status of 200."""
        if (unknown := self._unknown(body)) is not None:
            return unknown
        generation = self._generation(request, body, prompt, asked)
        refusal = self._refusal(generation)
        if refusal and endpoint is TokensEndpoint.COMPLETIONS and "vocabulary" not in refusal:
            return _error(400, refusal, "BadRequestError")
        stream = await streaming(request)
        try:
            if refusal:
                raise EngineRefused(refusal)
            await self._stream(stream, endpoint, generation)
        except EngineError as error:
            await stream.write(error_event(error.status, str(error)))
        await stream.write(DONE)
        return stream

    async def _stream(self, stream: web.StreamResponse, endpoint: TokensEndpoint, generation: Generation) -> None:
        cached, sampled = self.caching(generation), 0
        with self.working():
            await self._compute(len(generation.prompt) - cached)
            async with aclosing(self.chunks(generation, f"generate-tokens-{generation.id}")) as chunks:
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
            min_tokens=asked.get("min_tokens", 0),
        )
        return Generation(request.headers["x-request-id"], prompt, sampling, cache_salt=body["cache_salt"])

    def _refusal(self, generation: Generation) -> str:
        """Why it won't do this; empty if it will."""
        if len(generation.prompt) > self.context_tokens:
            return f"The prompt is longer than the maximum model length of {self.context_tokens}."
        if max(generation.prompt) > LAST_LEGAL:
            return f"Token id {max(generation.prompt)} is out of vocabulary"
        try:
            constrained(generation.sampling.structural_tag)
        except (ValueError, LookupError, TypeError, re.error) as error:
            return f"Invalid grammar specification: {error}"
        return ""

    async def _compute(self, tokens: int) -> None:
        if self.compute_seconds:
            async with self._computing:
                await asyncio.sleep(tokens * self.compute_seconds)


@asynccontextmanager
async def standing_in(engine: Engine, **traits: Any) -> AsyncIterator[Standin]:
    """A stand-in that runs until the end of the block."""
    async with standing(Standin(engine), **traits) as server:
        yield server


def _error(status: int, message: str, type: str, param: str | None = None) -> web.Response:
    return as_json(error_body(status, message, type, param), status)
