"""A stand-in for a TensorRT-LLM server: its wire over an engine of ours, as read in its source of 2026.

No real server holds it to that. Never teach it to be nicer than the source is.
"""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from aiohttp import web

from service.engine.port import Chunk, Engine, EngineError, Finish, Generation, Sampling
from service.engine.servers.experimental import COMPLETIONS, Tensorrt
from service.harmony.tokens import RETURN
from tests.support.engine.standing import Asked, Standing, as_json, constrained, healthy, standing, streaming
from tests.support.tensorrt.wire import DONE, error, error_body, event, usage, usage_event

KEYS = {
    *("model", "prompt", "stream", "stream_options", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "stop_token_ids", "include_stop_str_in_output"),
    *("ignore_eos", "add_special_tokens", "detokenize", "skip_special_tokens", "logprobs", "logit_bias", "priority"),
    *("response_format", "conversation_params"),
}
"""What it knows, of what we could say."""


class TensorrtStandin(Standing):
    """The server."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.reuses = True
        """Whether a prompt is matched with what is cached: enable_block_reuse."""
        self.says_cached = True
        """Whether it is recent enough to say so."""
        self.gives_ids = True
        """Whether it is recent enough to give ids."""
        self.guided = True
        """Whether it was started with a guided_decoding_backend."""
        self.postprocess_workers = 0
        self.shared = False
        self._count = 0

    @property
    def kind(self) -> Tensorrt:
        return Tensorrt(shared=self.shared)

    @property
    def generations(self) -> list[Asked]:
        """The requests for a generation so far, without the probes."""
        return [each for each in self.asked if each.path == COMPLETIONS and each.body.get("stream")]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/health", healthy)
        router.add_get("/v1/models", self._models)
        router.add_post(COMPLETIONS, self._complete)

    async def _models(self, request: web.Request) -> web.Response:
        card = {"id": self.model, "object": "model", "created": 1, "owned_by": "tensorrt_llm"}
        return as_json({"object": "list", "data": [card]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = self.asked[-1].body
        if unknown := body.keys() - KEYS:
            return as_json({"error": f"[{{'type': 'extra_forbidden', 'loc': ('body', {sorted(unknown)})}}]"}, 400)
        if not isinstance(body.get("response_format", {}).get("format", {}), dict):
            return as_json({"error": "[{'type': 'model_attributes_type'}]"}, 400)
        if refusal := self._refusal(body):
            return as_json(error_body(400, refusal), 400)
        generation = self._generation(body)
        cached = self.caching(generation).cached if self.reuses else 0
        if not body.get("stream"):
            return await self._whole(generation, body, cached)
        stream = await streaming(request)
        try:
            await self._stream(stream, generation, body, cached)
        except (EngineError, ValueError, LookupError, TypeError, re.error) as failed:
            await stream.write(error(f"Generation failed: {failed}"))
        await stream.write(DONE)
        return stream

    def _refusal(self, body: dict[str, Any]) -> str:
        """Why it won't do this; empty if it will."""
        if len(body["prompt"]) + body["max_tokens"] > self.context_tokens + 1:
            return f"The sum of prompt length and max_tokens should not exceed {self.context_tokens}"
        if "logit_bias" in body and self.postprocess_workers:
            return "logit_bias requires a tokenizer, but the server was started without one"
        if not 0 < body["top_p"] <= 1:
            return "topP must be in (0, 1]"
        if "response_format" in body and not self.guided:
            return "Guided decoding is not enabled"
        return ""

    def _generation(self, body: dict[str, Any]) -> Generation:
        """What its engine is asked; the model's own end counts, too."""
        stops = () if body.get("ignore_eos") else (*body.get("stop_token_ids", ()), RETURN)
        form = body.get("response_format")
        tag = {"type": "structural_tag", "format": form["format"]} if form else None
        sampling = Sampling(
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            stop_ids=stops,
            structural_tag=None if tag is None else as_json(tag).text,
        )
        self._count += 1
        return Generation(str(self._count), body["prompt"], sampling)

    async def _whole(self, generation: Generation, body: dict[str, Any], cached: int) -> web.Response:
        ids = [id async for chunk in self.chunks(generation, generation.id) for id in chunk.tokens]
        choice = {"index": 0, "text": "", "token_ids": ids if self.gives_ids and not body["detokenize"] else None}
        counted = usage(len(generation.prompt), len(ids), cached)
        if not self.says_cached:
            counted["prompt_tokens_details"] = None
        return as_json(
            {"object": "text_completion", "choices": [choice | {"finish_reason": "length"}], "usage": counted}
        )

    async def _stream(
        self, stream: web.StreamResponse, generation: Generation, body: dict[str, Any], cached: int
    ) -> None:
        constrained(generation.sampling.structural_tag)  # raises for one that it can't compile
        sampled, prompt = 0, len(generation.prompt)
        with self.working():
            async with aclosing(self.chunks(generation, generation.id)) as chunks:
                async for chunk in chunks:
                    sampled += len(chunk.tokens)
                    ids = chunk.tokens if not body["detokenize"] else None
                    if ids and _cut(chunk, body):
                        ids = ids[:-1]
                    so_far = usage(prompt, sampled, cached)
                    await stream.write(event(ids, chunk.finish, usage=so_far))
        await stream.write(usage_event(prompt, sampled, cached))


def _cut(chunk: Chunk, body: dict[str, Any]) -> bool:
    """Whether the last id is kept back: one that was given as a stop, and not the model's own."""
    return chunk.finish is Finish.STOP and not body.get("include_stop_str_in_output") and chunk.tokens[-1:] != [RETURN]


@asynccontextmanager
async def tensorrt(engine: Engine, **traits: Any) -> AsyncIterator[TensorrtStandin]:
    """A stand-in that runs until the end of the block."""
    async with standing(TensorrtStandin(engine), **traits) as server:
        yield server
