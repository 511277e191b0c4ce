"""The kinds of servers that are asked by Chat Completions: any server, vLLM's and llama.cpp's.

Such a server makes each prompt of messages, by its own template, and reads its model by its own parser. A user's text
never becomes a mark as far as marks can be known: where a server tells how it cuts texts it is asked for them,
else the marks of common models count as marks.

Every server gets the members that all servers know; a kind of server adds those that it alone knows. Members that the
request doesn't ask for are left out, as some servers refuse unknown ones.
"""

import logging
from typing import Any

import msgspec

from service.engine.port import SERVER, EngineError, EngineRefused, Generation, Speech, usual_options
from service.engine.servers.kind import (
    MODELS,
    Ask,
    Pieces,
    Request,
    ServerFacts,
    ServerKind,
    Wanted,
)
from service.engine.servers.token_ids import LEAST_TOP_P
from service.engine.vllm.pictures import LOOK
from service.engine.vllm.servers import TOKENIZE, Vllm
from service.features.chat_servers.answer import ChatAnswer, refusal_of
from service.features.llama.servers import Llama
from service.features.models.markup.by_server import ENDED
from service.features.models.speech import Disarming, common_pieces
from service.logs import event
from service.pictures import REFERENCE, with_urls

logger = logging.getLogger(__name__)

CHAT = "/v1/chat/completions"

CUTS = "cuts texts"
"""The trait of a server that tells how it cuts a text into tokens."""

MOST_PICTURE_TOKENS = 16_384
"""As Qwen-VL at its most."""

LOST = "prompts by ids, continuing in the middle of an answer, grammars, exact lengths"
"""The features that such a server lacks; docs/models.md explains each."""

USUAL_EFFORT = "medium"


class ByChat(ServerKind):
    """Any server with Chat Completions. `shared` is whether several tenants use it: it may not keep them apart, so none
    is told how many tokens were cached.
    """

    name = "Chat Completions"
    health = MODELS
    loading = ""
    keeps_connections = False  # nobody says for how long it would

    def __init__(self, *, shared: bool) -> None:
        self._tells_cached = not shared
        self._disarming = Disarming()

    async def facts(self, ask: Ask, wanted: Wanted) -> ServerFacts:
        """The facts. Whether it holds its model to anything it doesn't say."""
        self._disarming = Disarming()  # another model has other marks
        traits = frozenset({CUTS} if await self._cuts(ask) else ())
        places = await self._places(ask)
        model, context, _ = await self.served_model(ask, wanted)
        event(logger, logging.INFO, f"the {self.name} server reads its model itself", model=model, lost=LOST)
        speech = Speech(SERVER, ends=(ENDED,), sees=await self._sees(ask, model))
        return ServerFacts(CHAT, model, context, places=places, traits=traits, speech=speech, constrains=False)

    async def serves(self, ask: Ask, facts: ServerFacts, wanted: Wanted) -> bool:
        return await self._places(ask) == facts.places and await super().serves(ask, facts, wanted)

    async def disarm(self, ask: Ask, facts: ServerFacts, generation: Generation) -> Generation:
        if generation.asks is None:
            return generation
        pieces = self._pieces(ask, facts.model) if CUTS in facts.traits else common_pieces
        sees = facts.speech is not None and facts.speech.sees
        transcript = await self._disarming.disarm(pieces, generation.asks.transcript, sees=sees)
        asks = msgspec.structs.replace(generation.asks, transcript=transcript)
        return msgspec.structs.replace(generation, asks=asks)

    def request(self, facts: ServerFacts, generation: Generation) -> Request:
        own = self._own(generation)
        return Request(CHAT, request_body(generation, facts.model, facts.context_tokens, own))

    def answer(self, generation: Generation) -> ChatAnswer:
        sampling = generation.sampling
        return ChatAnswer(
            self.name,
            max_tokens=sampling.max_tokens,
            logprobs=sampling.logprobs,
            tells_cached=self._tells_cached,
        )

    def refusal(self, status: int, body: bytes) -> EngineError:
        return refusal_of(self.name, status, body)

    async def _places(self, ask: Ask) -> int:
        """How many generations it can have under way at once; 0 is as many as come."""
        return 0

    async def _cuts(self, ask: Ask) -> bool:
        """Whether it tells how it cuts a text. Raises the errors of `ask`."""
        return False

    async def _sees(self, ask: Ask, model: str) -> bool:
        """Whether it shows its model pictures, as far as it says so itself. Raises the errors of `ask`."""
        return False

    def _pieces(self, ask: Ask, model: str) -> Pieces:
        """The function that cuts texts into pieces."""
        return common_pieces

    def _own(self, generation: Generation) -> dict[str, Any]:
        """Members that this kind adds to the body."""
        options = _options(generation)
        effort = options.get("reasoning_effort", USUAL_EFFORT)
        own = {} if effort == USUAL_EFFORT else {"reasoning_effort": effort}
        asks_more = not options.items() <= usual_options(effort).items()
        return own | ({"chat_template_kwargs": options} if asks_more else {})


class VllmByChat(ByChat):
    """vLLM's servers. Salts keep tenants apart there."""

    name = Vllm.name
    health, loading = Vllm.health, Vllm.loading
    keeps_connections = True

    def __init__(self) -> None:
        super().__init__(shared=False)
        self._vllm = Vllm()
        self.load, self.passed_members, self._pieces = self._vllm.load, self._vllm.passed_members, self._vllm.pieces

    async def _cuts(self, ask: Ask) -> bool:
        status, _ = await ask("POST", TOKENIZE, b'{"prompt": "a"}')
        return status == 200

    async def _sees(self, ask: Ask, model: str) -> bool:
        status, _ = await ask("POST", TOKENIZE, msgspec.json.encode({"model": model, "messages": LOOK}))
        return status == 200

    def _own(self, generation: Generation) -> dict[str, Any]:
        return {
            "return_token_ids": True,
            "cache_salt": generation.cache_salt,
            "priority": generation.priority,
            "chat_template_kwargs": _options(generation),
        }


class LlamaByChat(ByChat):
    """llama.cpp's servers, each of which is asked for as many generations as it has slots."""

    name = Llama.name
    health, loading = Llama.health, Llama.loading
    streams_alone = True

    def __init__(self, *, shared: bool) -> None:
        super().__init__(shared=shared)
        self._llama = Llama(shared=shared)
        self.passed_members, self._pieces = self._llama.passed_members, self._llama.pieces

    async def _places(self, ask: Ask) -> int:
        return (await self._llama.props(ask)).total_slots

    async def _cuts(self, ask: Ask) -> bool:
        return True

    async def _sees(self, ask: Ask, model: str) -> bool:
        return (await self._llama.props(ask)).modalities.vision

    def _own(self, generation: Generation) -> dict[str, Any]:
        penalty = generation.sampling.repetition_penalty
        return {
            "cache_prompt": self._llama.caches(generation.cache_salt),
            "chat_template_kwargs": _options(generation),
            **({} if penalty == 1 else {"repeat_penalty": penalty}),
        }


def _options(generation: Generation) -> dict[str, Any]:
    """The options about reasoning that the template gets. The usual effort is left out: some templates refuse it."""
    asked = b"{}" if generation.asks is None else generation.asks.transcript.options
    options = msgspec.json.decode(asked, type=dict[str, Any])
    return {name: value for name, value in options.items() if (name, value) != ("reasoning_effort", USUAL_EFFORT)}


def request_body(generation: Generation, model: str, context_tokens: int, own: dict[str, Any]) -> bytes:
    """The body of a generation; `own` are members for its kind of server alone. Raises EngineRefused.

    `max_tokens` is left out where the prompt might leave less room, as servers refuse that: the reader of the stream
    ends it there. No text has more tokens than bytes, and hardly any model more for a picture than
    MOST_PICTURE_TOKENS.
    """
    asks, sampling = generation.asks, generation.sampling
    if asks is None:
        raise EngineRefused("the server makes its prompts itself, but harmonium made this one")
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or LEAST_TOP_P,
    }
    most = asks.size + MOST_PICTURE_TOKENS * asks.transcript.messages.count(REFERENCE.encode())
    if most + sampling.max_tokens <= context_tokens:
        body["max_tokens"] = sampling.max_tokens
    if asks.transcript.tools != b"[]":
        body |= {"tools": msgspec.Raw(asks.transcript.tools), "parallel_tool_calls": asks.parallel}
        body |= {} if asks.choice == "auto" else {"tool_choice": asks.choice}
    if asks.form:
        body["response_format"] = msgspec.Raw(asks.form)
    if sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": sampling.logprobs}
    wished = {
        "top_k": sampling.top_k or None,
        "min_p": sampling.min_p or None,
        "presence_penalty": sampling.presence_penalty or None,
        "frequency_penalty": sampling.frequency_penalty or None,
        "repetition_penalty": sampling.repetition_penalty if sampling.repetition_penalty != 1 else None,
        "seed": sampling.seed,
        "min_tokens": sampling.min_tokens or None,
    }
    said = msgspec.json.encode(body | {name: value for name, value in wished.items() if value is not None} | own)
    pieces = with_urls(asks.transcript.messages, asks.pictures)
    return b"".join((b'{"messages":', *pieces, b",", memoryview(said)[1:]))  # with pictures it is large: made once
