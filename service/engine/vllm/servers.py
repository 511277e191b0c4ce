"""The kind of servers that vLLM's are: how to learn a server's facts."""

import asyncio
from collections.abc import Mapping, Sequence

from service.engine.pass_through import Passed
from service.engine.port import Defaults, EngineError, EngineUnavailable, Generation
from service.engine.servers.answer import Answer
from service.engine.servers.engine import Access, ServersEngine
from service.engine.servers.kind import Ask, Facts, Request, ServerLoad, Wanted
from service.engine.servers.speech import Disarming, Pieces, Written, speech_of
from service.engine.servers.token_ids import TokenIdServers, asked, served
from service.engine.vllm import wire
from service.engine.vllm.wire import Endpoint
from service.harmony.tokens import START
from service.markup.speech import Speech, Transcript


class VllmAnswer(Answer):
    """A stream of either endpoint."""

    name = wire.NAME

    def _take(self, payload: bytes) -> None:
        event = wire.read_event(payload)
        if event.usage is not None and event.usage.cached_tokens is not None:
            self._cached_tokens = event.usage.cached_tokens
        if self._finish is not None:
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


class Vllm(TokenIdServers):
    """vLLM's servers, and routers before some."""

    name = wire.NAME
    health = "/health"
    notices_hang_ups = True

    def __init__(self) -> None:
        self._disarming = Disarming()

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """As the kind has it. Where a router doesn't say how texts are cut, the model is taken for gpt-oss."""
        endpoint = await self._endpoint(ask)
        defaults = await self._defaults(ask) if endpoint is Endpoint.GENERATE else Defaults()
        model, context_tokens = await served(wire.NAME, ask, wanted)
        speech = await self._speech(ask, model)
        if model != (again := (await served(wire.NAME, ask, wanted))[0]):
            raise EngineUnavailable(f"the vLLM server served {model!r} a moment ago, and now {again!r}")
        return Facts(endpoint, model, context_tokens, defaults, speech=speech)

    async def render(self, ask: Ask, facts: Facts, transcript: Transcript) -> list[int]:
        """As the kind has it."""
        disarmed = await self._disarming.disarmed(pieces_of(ask, facts.model), transcript)
        return wire.read_cut(
            await asked(wire.NAME, ask, "POST", wire.TOKENIZE, wire.template_body(disarmed, facts.model))
        ).tokens

    async def cut(self, ask: Ask, text: str) -> list[int]:
        """As the kind has it. It is never asked: no id is left out of its streams."""
        raise EngineError("the vLLM server has left out ids")

    async def told(self, ask: Ask) -> ServerLoad:
        """As the kind has it."""
        status, body = await ask("GET", wire.METRICS, None)
        return await asyncio.to_thread(wire.read_told, body) if status == 200 else ServerLoad()

    def request(self, facts: Facts, generation: Generation) -> Request:
        """As the kind has it."""
        endpoint = Endpoint(facts.endpoint)
        end = Request(wire.ABORT, wire.abort_body(generation.id)) if endpoint is Endpoint.GENERATE else None
        return Request(endpoint, wire.request_body(endpoint, generation, facts.model), end)

    def answer(self, generation: Generation) -> VllmAnswer:
        """As the kind has it."""
        return VllmAnswer(logprobs=generation.sampling.logprobs, decoded=generation.decoded)

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it."""
        return {"cache_salt": passed.cache_salt, "priority": passed.priority}

    async def _speech(self, ask: Ask, model: str) -> Speech | None:
        """How the model speaks, None where that is Harmony."""
        status, body = await ask("POST", wire.TOKENIZE, wire.tokenize_body(HARMONY_START, model))
        if status in (403, 404, 405):
            return None
        if status != 200:
            raise self.refused(status, body)
        if wire.read_cut(body).tokens == [START]:
            return None
        return await speech_of(pieces_of(ask, model), _written_by(ask, model), model)

    async def _endpoint(self, ask: Ask) -> Endpoint:
        """The better endpoint that it has. A request without a prompt is 400 where it is, and 403 or 404 else."""
        status, body = await ask("POST", Endpoint.GENERATE, b"{}")
        if status in (400, 422):
            return Endpoint.GENERATE
        if status in (403, 404, 405):
            return Endpoint.COMPLETIONS
        raise self.refused(status, body)

    async def _defaults(self, ask: Ask) -> Defaults:
        """Its default sampling, from the parameters that it fills in for a request without any."""
        status, body = await ask("POST", "/v1/completions/render", b'{"prompt": [0]}')
        return wire.read_defaults(body) if status == 200 else Defaults()


def pieces_of(ask: Ask, model: str) -> Pieces:
    """A function that cuts a text into pieces, marks among them."""

    async def pieces(text: str) -> Sequence[tuple[int, str]]:
        cut = await _cut(ask, wire.tokenize_body(text, model))
        return list(zip(cut.tokens, cut.token_strs or (), strict=False))

    return pieces


def _written_by(ask: Ask, model: str) -> Written:
    """A function that returns the text the template makes, as far as its tokens have their texts."""

    async def written(transcript: Transcript) -> str | None:
        texts = wire.read_cut(
            await asked(wire.NAME, ask, "POST", wire.TOKENIZE, wire.template_body(transcript, model, texts=True))
        ).token_strs
        return None if texts is None else "".join(texts)

    return written


async def _cut(ask: Ask, body: bytes) -> wire.Cut:
    """The ids into which it cuts a text, or a transcript. Raises EngineError where it refuses."""
    return wire.read_cut(await asked(wire.NAME, ask, "POST", wire.TOKENIZE, body))


def vllm_engine(access: Access, *, model: str = "", context_tokens: int = 0) -> ServersEngine:
    """vLLM servers as one engine."""
    return ServersEngine(Vllm(), access, model=model, context_tokens=context_tokens)
