"""A stand-in for an SGLang server: its wire over an engine of ours, as read in the source of SGLang 0.5.23.

No real server holds it to that. Never teach it to be nicer than the source is.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from aiohttp import web

from service.engine.demo.engine import Prefix
from service.engine.port import Chunk, Engine, Finish, Generation, Sampling, TokenLogprobs
from service.engine.servers.experimental import ABORT, GENERATE, READY, Sglang
from service.harmony.tokens import ENDS
from tests.support.engine.standing import Asked, Standing, as_json, constrained, healthy, standing, streaming
from tests.support.sglang.wire import DONE, abort, error, event, logprobs

USUAL_TOKENS = 128
"""How many tokens a request gets that doesn't say."""


class SglangStandin(Standing):
    """The server."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.model_type = "gpt_oss"
        self.room = 0
        """For how many tokens its cache has room; 0 is not told."""
        self.hang_up_seconds = 2.0
        """How long it takes to notice that somebody hung up."""
        self._under_way: dict[str, asyncio.Task[None]] = {}

    @property
    def kind(self) -> Sglang:
        return Sglang()

    @property
    def generations(self) -> list[Asked]:
        """The requests for a generation so far."""
        return [each for each in self.asked if each.path == GENERATE]

    @property
    def aborts(self) -> list[str]:
        """What it was asked to end."""
        return [each.body["rid"] for each in self.asked if each.path == ABORT]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Say what it answers. /health samples a token, and isn't for us."""
        router.add_get(READY, healthy)
        router.add_get("/model_info", self._info)
        router.add_get("/v1/models", self._models)
        router.add_get("/server_info", self._server)
        router.add_post(GENERATE, self._generate)
        router.add_post(ABORT, self._abort)

    def forget(self) -> None:
        """Lose what is cached, and all that is under way."""
        super().forget()
        for task in self._under_way.values():
            task.cancel()

    async def _info(self, request: web.Request) -> web.Response:
        return as_json(
            {
                "model_path": "/models/x",
                "served_model_name": self.model,
                "is_generation": True,
                "model_type": self.model_type,
                "architectures": ["GptOssForCausalLM"],
            }
        )

    async def _server(self, request: web.Request) -> web.Response:
        return as_json(
            {"model_path": "/models/x", "version": "0.5.23"}
            | ({"max_total_num_tokens": self.room} if self.room else {})
        )

    async def _models(self, request: web.Request) -> web.Response:
        card = {"id": self.model, "object": "model", "created": 1, "owned_by": "sglang", "root": self.model}
        lora = {"id": "lora", "object": "model", "parent": self.model, "max_model_len": None}
        return as_json({"object": "list", "data": [card | {"max_model_len": self.context_tokens}, lora]})

    async def _abort(self, request: web.Request) -> web.Response:
        self.end(self.asked[-1].body["rid"])
        return web.Response()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if not isinstance(body.get("input_ids"), list):
            return as_json({"error": "input_ids: expected a list of integers"}, 400)
        stream = await streaming(request)
        if reason := self._refusal(body):
            await stream.write(error(reason))
        else:
            await self._stream(stream, body)
        await stream.write(DONE)
        return stream

    def _refusal(self, body: dict[str, Any]) -> str:
        """Why it won't do this; empty if it will."""
        asked = body["sampling_params"]
        if body["rid"] in self._under_way:
            return f"Duplicate request ID detected: {body['rid']}"
        if len(body["input_ids"]) >= self.context_tokens:
            return f"The input is longer than the model's context length ({self.context_tokens} tokens)."
        if not 0 < asked["top_p"] <= 1:
            return f"top_p must be in (0, 1], got {asked['top_p']}."
        if asked["top_k"] < 1 and asked["top_k"] != -1:
            return f"top_k must be -1 (disable) or at least 1, got {asked['top_k']}."
        return ""

    async def _stream(self, stream: web.StreamResponse, body: dict[str, Any]) -> None:
        """Send what is sampled, which goes on for a while when nobody listens any more."""
        rid, events = body["rid"], asyncio.Queue[bytes | None]()
        task = self._under_way[rid] = asyncio.create_task(self._work(body, events))
        task.add_done_callback(lambda _: self._under_way.pop(rid))
        try:
            while (sent := await events.get()) is not None:
                await stream.write(sent)
        finally:
            if not task.done():
                asyncio.get_running_loop().call_later(self.hang_up_seconds, self.end, rid)

    async def _work(self, body: dict[str, Any], events: "asyncio.Queue[bytes | None]") -> None:
        generation = self._generation(body)
        prefix = self.caching(generation)
        try:
            with self.working():
                await self._sample(generation, prefix, events)
        except (ValueError, LookupError, TypeError, re.error) as failed:
            reason = abort(f"Failed to compile structural_tag grammar: {failed}", 400)
            events.put_nowait(event([0], 1, reason))
        finally:
            events.put_nowait(None)

    async def _sample(self, generation: Generation, prefix: Prefix, events: "asyncio.Queue[bytes | None]") -> None:
        constrained(generation.sampling.structural_tag)  # raises for one that it can't compile
        ids, cached = list[int](), prefix.cached
        given: list[TokenLogprobs] = []
        async with aclosing(self.chunks(generation, generation.id)) as chunks:
            async for chunk in chunks:
                before = len(ids)
                ids += chunk.tokens
                given += chunk.logprobs or []
                more: dict[str, Any] = {"cached_tokens": cached}
                if generation.sampling.logprobs is not None:
                    more |= logprobs(ids[before:], given[before:], tops=generation.sampling.logprobs > 0)
                events.put_nowait(event(ids[before:], len(ids), _reason(chunk, ids), **more))
        prefix.add(ids[:-1])

    def _generation(self, body: dict[str, Any]) -> Generation:
        """What its engine is asked: the room is what the context leaves, and the model's own ends count, too."""
        asked, prompt = body["sampling_params"], body["input_ids"]
        stops = () if asked.get("ignore_eos") else (*asked.get("stop_token_ids", ()), *ENDS)
        sampling = Sampling(
            max_tokens=max(1, min(asked.get("max_new_tokens", USUAL_TOKENS), self.context_tokens - len(prompt) - 1)),
            temperature=asked["temperature"],
            stop_ids=stops,
            logprobs=body["top_logprobs_num"] if body.get("return_logprob") else None,
            structural_tag=asked.get("structural_tag"),
        )
        return Generation(body["rid"], prompt, sampling, cache_salt=body.get("cache_salt"))


def _reason(chunk: Chunk, ids: list[int]) -> dict[str, Any] | None:
    if chunk.finish is Finish.STOP:
        return {"type": "stop", "matched": ids[-1]}
    if chunk.finish is Finish.LENGTH:
        return {"type": "length", "length": len(ids)}
    return chunk.finish and abort("Aborted")


@asynccontextmanager
async def sglang(engine: Engine, **traits: Any) -> AsyncIterator[SglangStandin]:
    """A stand-in that runs until the end of the block."""
    async with standing(SglangStandin(engine), **traits) as server:
        yield server
