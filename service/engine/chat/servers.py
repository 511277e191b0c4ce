"""The kinds of servers that are asked by Chat Completions: any server, vLLM's and llama.cpp's.

Such a server makes each prompt of messages, by its own template, and reads its model by its own parser. A user's text
never becomes a mark as far as marks can be known: where a server tells how it cuts texts it is asked for them,
else the marks of common models count as marks.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from service.engine.chat import wire
from service.engine.chat.answer import ChatAnswer
from service.engine.chat.wire import CHAT, MODELS
from service.engine.llama import wire as llama_wire
from service.engine.llama.servers import Llama
from service.engine.llama.servers import pieces_of as llama_pieces_of
from service.engine.pass_through import Passed
from service.engine.port import EngineError, EngineUnavailable, Generation
from service.engine.servers.kind import Ask, Facts, Request, ServerLoad, Wanted
from service.engine.servers.speech import Disarming, Pieces, common_pieces
from service.engine.vllm import wire as vllm_wire
from service.engine.vllm.servers import Vllm
from service.engine.vllm.servers import pieces_of as vllm_pieces_of
from service.logs import event
from service.markup.by_server import ENDED
from service.markup.speech import SERVER, Speech

logger = logging.getLogger(__name__)

CUTS = "cuts texts"
"""The trait of a server that tells how it cuts a text into tokens."""

LOST = "prompts by ids, going on amid an answer, grammars, exact lengths"
"""The features that such a server lacks; docs/models.md explains each."""

USUAL_EFFORT = "medium"


class ByChat:
    """Any server with Chat Completions. `shared` is whether several tenants use it: it may not keep them apart, so none
    is told how many tokens were cached.
    """

    name = "Chat Completions"
    health = MODELS
    keeps_connections = False  # nobody says for how long it would
    notices_hang_ups = True  # it can't be ended otherwise
    streams_alone = False

    def __init__(self, *, shared: bool) -> None:
        self._tells_cached = not shared
        self._disarming = Disarming()

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """As the kind has it."""
        traits = frozenset({CUTS}) if await self._cuts(ask) else frozenset[str]()
        found = msgspec.structs.replace(await self._served(ask, wanted), traits=traits)
        event(logger, logging.INFO, f"the {self.name} server reads its model itself", model=found.model, lost=LOST)
        return found

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        """As the kind has it."""
        return msgspec.structs.replace(await self._served(ask, wanted), traits=facts.traits) == facts

    async def told(self, ask: Ask) -> ServerLoad:
        """As the kind has it: nothing."""
        return ServerLoad()

    async def disarmed(self, ask: Ask, facts: Facts, generation: Generation) -> Generation:
        """The generation without marks in its texts. Raises EngineError, and the errors of `ask`."""
        if generation.asks is None:
            return generation
        pieces = self._pieces(ask, facts.model) if CUTS in facts.traits else common_pieces
        transcript = await self._disarming.disarmed(pieces, generation.asks.transcript)
        asks = msgspec.structs.replace(generation.asks, transcript=transcript)
        return msgspec.structs.replace(generation, asks=asks)

    def request(self, facts: Facts, generation: Generation) -> Request:
        """As the kind has it."""
        own = self._own(generation)
        return Request(CHAT, wire.request_body(generation, facts.model, facts.context_tokens, own))

    def answer(self, generation: Generation) -> ChatAnswer:
        """As the kind has it."""
        sampling = generation.sampling
        return ChatAnswer(
            self.name,
            max_tokens=sampling.max_tokens,
            logprobs=sampling.logprobs,
            tells_cached=self._tells_cached,
        )

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it: nothing, as it may refuse members that it doesn't know."""
        return {}

    def refused(self, status: int, body: bytes) -> EngineError:
        """As the kind has it."""
        return wire.read_refusal(self.name, status, body)

    async def _served(self, ask: Ask, wanted: Wanted) -> Facts:
        """The server's facts. Raises EngineError where they don't fit."""
        status, body = await ask("GET", MODELS, None)
        if status != 200:
            raise self.refused(status, body)
        listed, terms = wire.read_models(self.name, body), wanted()
        served = next((each for each in listed if terms.model in ("", each.id)), None)
        if served is None:
            raise EngineUnavailable(f"the {self.name} server does not serve the model {terms.model!r}")
        context = served.context_tokens or terms.context_tokens
        if not context:
            raise EngineUnavailable(
                f"the {self.name} server does not say how long its model's context is; set HARMONIUM_CONTEXT_TOKENS"
            )
        speech = Speech(SERVER, ends=(ENDED,))
        # whether it holds its model to anything it doesn't say
        return Facts(CHAT, served.id, context, speech=speech, constrains=False)

    async def _cuts(self, ask: Ask) -> bool:
        """Whether it tells how it cuts a text. Raises the errors of `ask`."""
        return False

    def _pieces(self, ask: Ask, model: str) -> Pieces:
        """The function that cuts texts into pieces."""
        return common_pieces

    def _own(self, generation: Generation) -> dict[str, Any]:
        """Members that this kind adds to the body."""
        effort = _options(generation).get("reasoning_effort", USUAL_EFFORT)
        return {} if effort == USUAL_EFFORT else {"reasoning_effort": effort}


class VllmByChat(ByChat):
    """vLLM's servers. Salts keep tenants apart there."""

    name = vllm_wire.NAME
    health = "/health"
    keeps_connections = True

    def __init__(self) -> None:
        super().__init__(shared=False)
        self._vllm = Vllm()

    async def told(self, ask: Ask) -> ServerLoad:
        """As the kind has it."""
        return await self._vllm.told(ask)

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it."""
        return self._vllm.passed(passed)

    async def _cuts(self, ask: Ask) -> bool:
        status, _ = await ask("POST", vllm_wire.TOKENIZE, b'{"prompt": "a"}')
        return status == 200

    def _pieces(self, ask: Ask, model: str) -> Pieces:
        return vllm_pieces_of(ask, model)

    def _own(self, generation: Generation) -> dict[str, Any]:
        return {
            "return_token_ids": True,
            "cache_salt": generation.cache_salt,
            "priority": generation.priority,
            "chat_template_kwargs": _options(generation),
        }


class LlamaByChat(ByChat):
    """llama.cpp's servers, each of which is asked for as many generations as it has slots."""

    name = llama_wire.NAME
    health = "/health"
    streams_alone = True

    def __init__(self, *, shared: bool) -> None:
        super().__init__(shared=shared)
        self._llama = Llama(shared=shared)

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it."""
        return self._llama.passed(passed)

    async def _served(self, ask: Ask, wanted: Wanted) -> Facts:
        status, body = await ask("GET", "/props", None)
        if status != 200:
            raise self.refused(status, body)
        places = llama_wire.read_props(body).total_slots
        return msgspec.structs.replace(await super()._served(ask, wanted), places=places)

    async def _cuts(self, ask: Ask) -> bool:
        return True

    def _pieces(self, ask: Ask, model: str) -> Pieces:
        return llama_pieces_of(ask)

    def _own(self, generation: Generation) -> dict[str, Any]:
        penalty = generation.sampling.repetition_penalty
        return {
            "cache_prompt": self._llama.caches(generation.cache_salt),
            "chat_template_kwargs": _options(generation),
            **({} if penalty == 1 else {"repeat_penalty": penalty}),
        }


def _options(generation: Generation) -> dict[str, Any]:
    """The options about reasoning that the template gets."""
    return {} if generation.asks is None else msgspec.json.decode(generation.asks.transcript.options)
