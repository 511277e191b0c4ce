"""The kind of servers that vLLM's are: what to ask one to learn what it serves."""

from collections.abc import Mapping

from service.engine.pass_through import Passed
from service.engine.port import Defaults, EngineError, EngineUnavailable, Generation
from service.engine.servers.engine import Access, ServersEngine
from service.engine.servers.kind import Ask, Facts, Request, Wanted
from service.engine.vllm import wire
from service.engine.vllm.answer import VllmAnswer
from service.engine.vllm.wire import Endpoint


class Vllm:
    """vLLM's servers, and routers before some."""

    name = wire.NAME
    health = "/health"
    keeps_connections = True
    notices_hang_ups = True
    streams_alone = False

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """As the kind has it."""
        endpoint = await self._endpoint(ask)
        defaults = await self._defaults(ask) if endpoint is Endpoint.GENERATE else Defaults()
        model, context_tokens = await self._served(ask, wanted)
        return Facts(endpoint, model, context_tokens, defaults)

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        """As the kind has it."""
        return await self._served(ask, wanted) == (facts.model, facts.context_tokens)

    def request(self, facts: Facts, generation: Generation) -> Request:
        """As the kind has it."""
        endpoint = Endpoint(facts.endpoint)
        end = Request(wire.ABORT, wire.abort_body(generation.id)) if endpoint is Endpoint.GENERATE else None
        return Request(endpoint, wire.request_body(endpoint, generation, facts.model), end)

    def answer(self, generation: Generation) -> VllmAnswer:
        """As the kind has it."""
        return VllmAnswer(logprobs=generation.sampling.logprobs)

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it."""
        return {"cache_salt": passed.cache_salt, "priority": passed.priority}

    def refused(self, status: int, body: bytes) -> EngineError:
        """As the kind has it."""
        return wire.read_refusal(status, body)

    async def _served(self, ask: Ask, wanted: Wanted) -> tuple[str, int]:
        """The model that it serves and its context. Raises EngineError where that isn't what is wanted."""
        status, body = await ask("GET", "/v1/models", None)
        if status != 200:
            raise wire.read_refusal(status, body)
        listed, terms = wire.read_models(body).data, wanted()
        served = next((each for each in listed if terms.model in ("", each.id)), None)
        if served is None:
            raise EngineUnavailable(f"the vLLM server does not serve the model {terms.model!r}")
        context = served.max_model_len or terms.context_tokens
        if not context:
            raise EngineUnavailable(
                "the vLLM server does not say how long its model's context is; set HARMONIUM_CONTEXT_TOKENS"
            )
        return served.id, context

    async def _endpoint(self, ask: Ask) -> Endpoint:
        """The better endpoint that it has. A request without a prompt is 400 where it is, and 403 or 404 else."""
        status, body = await ask("POST", Endpoint.GENERATE, b"{}")
        if status in (400, 422):
            return Endpoint.GENERATE
        if status in (403, 404, 405):
            return Endpoint.COMPLETIONS
        raise wire.read_refusal(status, body)

    async def _defaults(self, ask: Ask) -> Defaults:
        """How it samples by default, from what it makes of a request that doesn't say."""
        status, body = await ask("POST", "/v1/completions/render", b'{"prompt": [0]}')
        return wire.read_defaults(body) if status == 200 else Defaults()


def vllm_engine(access: Access, *, model: str = "", context_tokens: int = 0) -> ServersEngine:
    """vLLM servers as one engine."""
    return ServersEngine(Vllm(), access, model=model, context_tokens=context_tokens)
