"""The kind of servers that vLLM's are: how to learn a server's facts."""

import asyncio
from collections.abc import Sequence
from typing import Any

from service.engine.pass_through import Passed
from service.engine.port import Defaults, EngineUnavailable, Generation
from service.engine.servers.answer import Answer
from service.engine.servers.kind import Ask, Facts, Kind, Request, ServerLoad, Wanted, read_event
from service.engine.servers.speech import Disarming, Pieces, speech_of
from service.engine.vllm import wire
from service.engine.vllm.wire import Endpoint
from service.harmony.tokens import START
from service.markup.speech import Speech, Transcript


class VllmAnswer(Answer):
    """A stream of either endpoint."""

    name = wire.NAME

    def _take(self, payload: bytes) -> None:
        event = read_event(wire.NAME, wire.EVENT, payload)
        if event.cached_tokens is not None:
            self._cached_tokens = event.cached_tokens
        if self.finished:
            return
        for choice in event.choices:
            if self._alternatives is not None:
                self._logprobs += wire.read_logprobs(choice, self._alternatives, decoded=self._decoded)
            if self._decoded and choice.text:
                self._text.append(choice.text)
            if choice.token_ids:
                self._tokens += choice.token_ids
            if choice.finish_reason is not None:
                self._finish_as(choice.finish_reason)


HARMONY_START = "<|start|>"
"""A mark that only the vocabulary of gpt-oss has as the id START."""


class Vllm(Kind):
    """vLLM's servers, and routers before some."""

    name = wire.NAME

    def __init__(self) -> None:
        self._disarming = Disarming()

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """The facts. Where a router doesn't say how texts are cut, the model is taken for gpt-oss."""
        endpoint = await self._endpoint(ask)
        defaults = Defaults()
        if endpoint is Endpoint.GENERATE:  # its parameters, as it fills them in for a request without any
            status, body = await ask("POST", "/v1/completions/render", b'{"prompt": [0]}')
            defaults = wire.read_defaults(body) if status == 200 else defaults
        model, context_tokens, _ = await self.served(ask, wanted)
        speech = await self._speech(ask, model)
        if model != (again := (await self.served(ask, wanted)).model):
            raise EngineUnavailable(f"the vLLM server served {model!r} a moment ago, and now {again!r}")
        return Facts(endpoint, model, context_tokens, defaults, speech=speech)

    async def render(self, ask: Ask, facts: Facts, transcript: Transcript) -> list[int]:
        disarmed = await self._disarming.disarmed(self.pieces(ask, facts.model), transcript)
        return wire.read_cut(await self.asked(ask, wire.TOKENIZE, wire.template_body(disarmed, facts.model))).tokens

    async def load(self, ask: Ask) -> ServerLoad:
        status, body = await ask("GET", wire.METRICS, None)
        return await asyncio.to_thread(wire.read_told, body) if status == 200 else ServerLoad()

    def request(self, facts: Facts, generation: Generation) -> Request:
        endpoint = Endpoint(facts.endpoint)
        end = Request(wire.ABORT, wire.abort_body(generation.id)) if endpoint is Endpoint.GENERATE else None
        return Request(endpoint, wire.request_body(endpoint, generation, facts.model), end)

    def answer(self, generation: Generation) -> VllmAnswer:
        return VllmAnswer(logprobs=generation.sampling.logprobs, decoded=generation.decoded)

    def passed(self, passed: Passed) -> dict[str, Any]:
        return {"cache_salt": passed.cache_salt, "priority": passed.priority}

    def pieces(self, ask: Ask, model: str) -> Pieces:
        """A function that cuts a text into pieces, marks among them."""

        async def pieces(text: str) -> Sequence[tuple[int, str]]:
            cut = wire.read_cut(await self.asked(ask, wire.TOKENIZE, wire.tokenize_body(text, model)))
            return list(zip(cut.tokens, cut.token_strs or (), strict=False))

        return pieces

    async def _speech(self, ask: Ask, model: str) -> Speech | None:
        """How the model speaks, None where that is Harmony."""
        status, body = await ask("POST", wire.TOKENIZE, wire.tokenize_body(HARMONY_START, model))
        if status in (403, 404, 405):
            return None
        if status != 200:
            raise self.refused(status, body)
        if wire.read_cut(body).tokens == [START]:
            return None

        async def written(transcript: Transcript) -> str | None:
            body = wire.template_body(transcript, model, texts=True)
            texts = wire.read_cut(await self.asked(ask, wire.TOKENIZE, body)).token_strs
            return None if texts is None else "".join(texts)

        return await speech_of(self.pieces(ask, model), written, model)

    async def _endpoint(self, ask: Ask) -> Endpoint:
        """The better endpoint that it has. A request without a prompt is 400 where it is, and 403 or 404 else."""
        status, body = await ask("POST", Endpoint.GENERATE, b"{}")
        if status in (400, 422):
            return Endpoint.GENERATE
        if status in (403, 404, 405):
            return Endpoint.COMPLETIONS
        raise self.refused(status, body)
