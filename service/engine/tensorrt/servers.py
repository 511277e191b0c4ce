"""The kind of servers that TensorRT-LLM's `trtllm-serve` is.

They have no salts that keep tenants' cached prompts apart, and nothing in a request says that it isn't to be matched
with what is cached. So one that has cached prompts is for one tenant alone, and for requests without a salt of their
own: whether it has, is seen when it is asked the same thing twice.
"""

import secrets
from collections.abc import Mapping

import msgspec

from service.engine.pass_through import Passed
from service.engine.port import EngineError, EngineRefused, EngineUnavailable, Generation
from service.engine.servers.kind import Ask, Facts, Request, Wanted
from service.engine.tensorrt import wire
from service.engine.tensorrt.answer import TensorrtAnswer
from service.harmony.tokens import FIRST_SPECIAL

REUSES = "reuses prompts"
"""The trait of a server that computes the beginning of a prompt once."""

PROBE_TOKENS = 300
"""How long the prompt is that is asked twice: more than two of the largest blocks."""

SWITCH_OFF = "start it with kv_cache_config: enable_block_reuse: false"


class Tensorrt:
    """TensorRT-LLM's servers. `shared` is whether several tenants use them; where not, `salt` is that of the one."""

    name = wire.NAME
    health = "/health"
    keeps_connections = True
    notices_hang_ups = True  # within a second, and it can't be ended otherwise
    streams_alone = False

    def __init__(self, *, shared: bool, salt: str | None = None) -> None:
        self._shared = shared
        self._salt = salt
        self._reuses = False
        """Whether one of them keeps cached prompts."""

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """As the kind has it."""
        served = await self._served(ask, wanted)
        reuses = await _reuses(ask, served.model)
        if reuses and self._shared:
            raise EngineUnavailable(
                f"the TensorRT-LLM server keeps cached prompts, and can't keep those of tenants apart; {SWITCH_OFF}"
            )
        self._reuses |= reuses
        found = await self._served(ask, wanted)
        return msgspec.structs.replace(found, traits=frozenset({REUSES} if reuses else ()))

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        """As the kind has it."""
        served = await self._served(ask, wanted)
        return (served.model, served.context_tokens) == (facts.model, facts.context_tokens)

    async def _served(self, ask: Ask, wanted: Wanted) -> Facts:
        """What it says of itself. Raises as `facts`."""
        status, body = await ask("GET", "/v1/models", None)
        if status != 200:
            raise wire.read_refusal(status, body)
        listed, terms = wire.read_models(body).data, wanted()
        served = next((each for each in listed if terms.model in ("", each.id)), None)
        if served is None:
            raise EngineUnavailable(f"the TensorRT-LLM server does not serve the model {terms.model!r}")
        if not terms.context_tokens:
            raise EngineUnavailable(
                "the TensorRT-LLM server does not say how long its model's context is; set HARMONIUM_CONTEXT_TOKENS to "
                "its --max_seq_len"
            )
        # whether constraints are on it doesn't say
        return Facts(wire.COMPLETIONS, served.id, terms.context_tokens, logprobs=False, constrains=False)

    def request(self, facts: Facts, generation: Generation) -> Request:
        """As the kind has it."""
        self._refuse_salted(REUSES in facts.traits, generation.cache_salt)
        return Request(wire.COMPLETIONS, wire.request_body(generation, facts.model))

    def _refuse_salted(self, reuses: bool, salt: str | None) -> None:
        """Raise EngineRefused for what isn't to be matched with what is cached, where everything is."""
        if reuses and salt != self._salt:
            raise EngineRefused(f"the engine can't keep cached prompts apart: leave out cache_salt, or {SWITCH_OFF}")

    def answer(self, generation: Generation) -> TensorrtAnswer:
        """As the kind has it."""
        return TensorrtAnswer(logprobs=None)

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it: nothing, as what it doesn't know it refuses, and its endpoints know different things."""
        self._refuse_salted(self._reuses, passed.cache_salt)
        return {}

    def refused(self, status: int, body: bytes) -> EngineError:
        """As the kind has it."""
        return wire.read_refusal(status, body)


async def _reuses(ask: Ask, model: str) -> bool:
    """Whether a prompt that was computed is matched with what is cached; also where the server doesn't say.

    Raises EngineError where it can't be asked as we ask.
    """
    prompt = [secrets.randbelow(FIRST_SPECIAL) for _ in range(PROBE_TOKENS)]
    cached: list[int | None] = []
    for _ in range(2):
        status, body = await ask("POST", wire.COMPLETIONS, wire.probe_body(prompt, model))
        if status != 200:
            raise wire.read_refusal(status, body)
        cached.append(wire.read_probe(body))
    return cached[-1] != 0
