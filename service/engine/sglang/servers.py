"""The kind of servers that SGLang's are.

They notice that somebody hung up after two seconds, so a generation is ended by its id as well. That is made anew for
each request: a response goes on behind a generation of its own that is just ending, and SGLang refuses an id that it
knows.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping

from service.engine.pass_through import Passed
from service.engine.port import EngineError, EngineUnavailable, Generation
from service.engine.servers.kind import Ask, Facts, Request, Told, Wanted
from service.engine.sglang import wire
from service.engine.sglang.answer import SglangAnswer
from service.logs import event

logger = logging.getLogger(__name__)

MODEL_TYPE = "gpt_oss"
"""What SGLang calls the only models that we can ask it for by tokens."""


class Sglang:
    """SGLang's servers, and routers before some."""

    name = wire.NAME
    health = wire.READY
    keeps_connections = True
    notices_hang_ups = False
    streams_alone = False

    def __init__(self) -> None:
        self._told = False

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """As the kind has it."""
        kind = wire.read_info(await _asked(ask, "/model_info")).model_type
        if kind != MODEL_TYPE:
            raise EngineUnavailable(f"the SGLang server's model is of the type {kind!r}, and gpt-oss {MODEL_TYPE!r}")
        return await self._served(ask, wanted)

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        """As the kind has it."""
        return await self._served(ask, wanted) == facts

    async def _served(self, ask: Ask, wanted: Wanted) -> Facts:
        """What it says of itself. Raises as `facts`."""
        listed, terms = wire.read_models(await _asked(ask, "/v1/models")).data, wanted()
        served = next((each for each in listed if terms.model in ("", each.id)), None)
        if served is None:
            raise EngineUnavailable(
                f"the SGLang server does not serve the model {terms.model!r}; see its --served-model-name"
            )
        context = served.max_model_len or terms.context_tokens
        if not context:
            raise EngineUnavailable(
                "the SGLang server does not say how long its model's context is; set HARMONIUM_CONTEXT_TOKENS"
            )
        return Facts(wire.GENERATE, served.id, context)

    async def told(self, ask: Ask) -> Told:
        """As the kind has it."""
        answers = [await ask("GET", path, None) for path in (wire.METRICS, wire.INFO)]
        page, info = (body if status == 200 else b"" for status, body in answers)
        return await asyncio.to_thread(wire.read_told, page, info)

    def request(self, facts: Facts, generation: Generation) -> Request:
        """As the kind has it."""
        chance = secrets.randbits(64)
        rid = f"{generation.id}-{chance:016x}"
        end = Request(wire.ABORT, wire.abort_body(rid))
        return Request(wire.GENERATE, wire.request_body(generation, rid, chance), end)

    def answer(self, generation: Generation) -> SglangAnswer:
        """As the kind has it."""
        return SglangAnswer(logprobs=generation.sampling.logprobs, on_repeated=self._tell)

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it."""
        return {**wire.salted(passed.cache_salt), "priority": wire.priority(passed.priority)}

    def refused(self, status: int, body: bytes) -> EngineError:
        """As the kind has it."""
        return wire.read_refusal(status, body)

    def _tell(self) -> None:
        """Say once what makes long answers slow."""
        if not self._told:
            self._told = True
            event(
                logger,
                logging.WARNING,
                "the SGLang server sends all tokens of an answer again with each new one; start it with "
                "--incremental-streaming-output",
            )


async def _asked(ask: Ask, path: str) -> bytes:
    """What it answers. Raises EngineError where it refuses."""
    status, body = await ask("GET", path, None)
    if status != 200:
        raise wire.read_refusal(status, body)
    return body
