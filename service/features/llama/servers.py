"""The kind of servers that llama.cpp's are, and their wire: requests to JSON, answers, and our errors for theirs.

`/completion` alone takes token ids and gives token ids. Its defaults aren't neutral, so we send every parameter of
sampling. A server ignores an unknown key in silence, so tests check each on a real one.

They have no salts that keep tenants' cached prompts apart. So a prompt is matched with what is cached only as long as
all generations have the same salt: from the second one on, every prompt is computed whole.

Each connection takes one of a few threads for as long as it lives, and a client that opens more of them than there are
slots leaves none for probes. So we run as many generations at a server as it has slots, and the others wait here.

The events of its stream have a token each, but where a character is spread over several: the server holds a text back
until it is whole, and then sends it with the last id alone; its count includes all of them (tools/server,
`process_token`). The earlier ones follow from their bytes: as many entries of the vocabulary as are missing, one after
the other. Nothing is known of their probabilities.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec

from service.engine.port import (
    LEAST_LOGPROB,
    EngineError,
    EngineRefused,
    EngineUnavailable,
    Generation,
    Passed,
    TokenLogprobs,
    Transcript,
)
from service.engine.servers.answer import Answer
from service.engine.servers.kind import (
    UNREADABLE,
    Ask,
    Count,
    Pieces,
    Request,
    ServerEvent,
    ServerFacts,
    ServerKind,
    TokenId,
    Wanted,
    read_event,
)
from service.engine.servers.token_ids import prompt_json
from service.features.llama.grammar import GUIDED, constraint
from service.features.llama.grammar import guidance_of as guided_by
from service.features.models.speech import Disarming
from service.grammar.tags import LAST_MARK
from service.harmony.tokens import ENDS, FIRST_SPECIAL, LAST_LEGAL, byte_table, vocabulary
from service.logs import event

logger = logging.getLogger(__name__)

NAME = "llama.cpp"
COMPLETION = "/completion"
TEMPLATE = "/apply-template"
TOKENIZE = "/tokenize"

T = TypeVar("T", bound=msgspec.Struct)

SEEDS = 2**32 - 1
"""The number of seeds: the one behind the last stands for none."""

SAMPLERS = ("penalties", "top_k", "top_p", "min_p", "temperature")
"""The steps of sampling, in vLLM's order; but vLLM applies the temperature first."""


class _Top(msgspec.Struct):
    id: TokenId
    token: str = ""
    logprob: float | None = None


class _Probability(_Top):
    """A sampled token's."""

    top_logprobs: list[_Top] = []


class _Timings(msgspec.Struct):
    cache_n: Count | None = None


class _StreamEvent(ServerEvent):
    """One event of a stream. `tokens_predicted` counts all that were sampled so far."""

    content: str = ""
    tokens: list[TokenId] = []
    tokens_predicted: Count = 0
    stop: bool = False
    stop_type: str = ""
    completion_probabilities: list[_Probability] = []
    timings: _Timings | None = None


class _Piece(msgspec.Struct):
    """An id, and the text that it stands for, as bytes where it is no text."""

    id: int
    piece: str | list[int] = ""


class _Pieces(msgspec.Struct):
    """A text in pieces."""

    tokens: list[_Piece]


class TextIds(msgspec.Struct):
    """The ids of a text."""

    tokens: list[TokenId]


class _Prompt(msgspec.Struct):
    """The text of a prompt."""

    prompt: str


class Modalities(msgspec.Struct, frozen=True):
    """The kinds of input that its model takes beside text."""

    vision: bool = False


class Props(msgspec.Struct):
    """The answer of `GET /props`."""

    total_slots: int = 1
    model_path: str = ""
    modalities: Modalities = Modalities()


_EVENT = msgspec.json.Decoder(_StreamEvent)
_ENCODE = msgspec.json.Encoder().encode


_PROBE = _ENCODE({"prompt": [0], "n_predict": 1, "grammar": f"{GUIDED}start: /a/\n"})
"""A request that a server refuses unless it has llguidance."""


def request_body(generation: Generation, context_tokens: int, *, cached: bool, guided: bool) -> bytes:
    """The body that asks for a generation; `cached` is whether its prompt may be cached, `guided` whether the server
    has llguidance. Raises EngineRefused.
    """
    sampling = generation.sampling
    allowed = set(sampling.stop_ids)
    body: dict[str, Any] = {
        "prompt": prompt_json(generation),
        "stream": True,
        "return_tokens": True,
        "timings_per_token": True,
        "n_predict": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "typical_p": 1.0,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_last_n": context_tokens,
        "samplers": SAMPLERS,
        "cache_prompt": cached,
        "seed": -1 if sampling.seed is None else sampling.seed % SEEDS,
    }
    if sampling.logprobs is not None:
        body["n_probs"] = max(1, sampling.logprobs)
    if generation.decoded:
        body["preserved_tokens"] = generation.marks
    banned = set[int]() if generation.decoded else set(ENDS) - allowed
    if 0 < sampling.min_tokens < sampling.max_tokens:
        raise EngineRefused("llama.cpp can't keep an answer from ending early; leave out min_tokens")
    if sampling.structural_tag is not None and generation.decoded:
        # what can't be said here is checked at the end
        body |= (guided_by(sampling.structural_tag, sampling.stop_ids) if guided else None) or {}
    elif sampling.structural_tag is not None:
        try:
            held = constraint(sampling.structural_tag, sampling.stop_ids, guided=guided)
        except ValueError as error:
            raise EngineRefused(f"the constraint can't be read: {error}") from error
        body |= held.asked
        banned = set(range(FIRST_SPECIAL, LAST_MARK + 1)) - allowed - held.marks
    if sampling.min_tokens:
        banned |= allowed
    if banned:
        body["logit_bias"] = [[id, False] for id in sorted(banned)]
    return _ENCODE(body)


def template_body(transcript: Transcript) -> bytes:
    """The body that asks for the text of a prompt, in which tools stand all the same where none may be called: else the
    server makes a grammar of their schemas, and refuses those that it can't. Without tools one with `--no-jinja`
    refuses a choice of them.
    """
    choice = {} if transcript.tools == b"[]" else {"tool_choice": "none"}
    return _ENCODE(
        {
            "messages": msgspec.Raw(transcript.messages),
            "tools": msgspec.Raw(transcript.tools),
            "chat_template_kwargs": msgspec.Raw(transcript.options),
            "add_generation_prompt": True,
            **choice,
        }
    )


def tokenize_body(text: str, *, marks: bool = True, pieces: bool = False) -> bytes:
    """The body that asks for a text's ids; `marks` is whether it may hold marks, `pieces` whether each has its text."""
    return _ENCODE({"content": text, "parse_special": marks, "add_special": False, "with_pieces": pieces})


def read(body: bytes, type: type[T]) -> T:
    """An answer to a request of ours. Raises EngineError."""
    try:
        return msgspec.json.decode(body, type=type)
    except UNREADABLE as error:
        raise EngineError("the llama.cpp server's answer is invalid") from error


REPLACEMENT = "\ufffd"
"""Stands for bytes that never become a character. The bytes themselves can't be recovered from it."""

_ENDS = {"eos": "stop", "limit": "length"}

MAX_MISSING = 16
"""The most ids that may be missing at once: a character has 4 bytes, and what a grammar holds back is no longer."""


class LlamaAnswer(Answer):
    """A stream."""

    name = NAME

    def __init__(self, *, logprobs: int | None, stop_ids: tuple[int, ...], decoded: bool = False) -> None:
        super().__init__(logprobs=logprobs, decoded=decoded)
        self._stop_ids = stop_ids
        self._count = 0
        """How many ids were sampled."""

    def _take(self, payload: bytes) -> None:
        event = read_event(NAME, _EVENT, payload)
        if self.finished:
            return
        if event.timings is not None and event.timings.cache_n is not None:
            self._cached_tokens = event.timings.cache_n
        if event.tokens:
            self._add(event)
        if event.stop:
            self._finish_as(_ENDS.get(event.stop_type, event.stop_type))
        elif event.tokens and event.tokens[-1] in self._stop_ids:
            self._finish_as("stop")
            self.over = True  # the server itself ends at the model's own alone

    def _add(self, event: _StreamEvent) -> None:
        missing, self._count = event.tokens_predicted - self._count - len(event.tokens), event.tokens_predicted
        found: list[int] = []
        if self._decoded:
            self._text.append(event.content)
            if missing > 0:
                self.lost.append((len(self._tokens), event.content))
        elif missing > 0:
            if REPLACEMENT in event.content or len(event.tokens) > 1:
                raise EngineError("the llama.cpp server left out ids that its text doesn't determine")
            try:
                found = missing_ids(event.content.encode(), event.tokens[0], missing)
            except ValueError as error:
                raise EngineError("the llama.cpp server left out ids that its text doesn't determine") from error
        self._tokens += [*found, *event.tokens]
        if self._alternatives is not None:
            if len(event.completion_probabilities) != len(event.tokens):
                raise EngineError("the llama.cpp server sent tokens without their log probabilities")
            self._logprobs += [TokenLogprobs(LEAST_LOGPROB)] * len(found)
            self._logprobs += [self._read(each, self._alternatives) for each in event.completion_probabilities]

    def _read(self, given: _Probability, most: int) -> TokenLogprobs:
        top = given.top_logprobs[:most]
        texts = (given.token, *(each.token for each in top)) if self._decoded else ()
        return TokenLogprobs(_finite(given.logprob), tuple((each.id, _finite(each.logprob)) for each in top), texts)


def _finite(logprob: float | None) -> float:
    return LEAST_LOGPROB if logprob is None else max(logprob, LEAST_LOGPROB)


def missing_ids(content: bytes, last: int, count: int) -> list[int]:
    """The `count` ids before `last`, whose bytes together are `content`. Raises ValueError where there are none such.

    Where bytes can be cut in several ways, the one with the longest beginning is taken. Some characters of four bytes
    can, as 128 from U+1F000 to U+1FFFF.
    """
    end = byte_table()[last]
    if count > MAX_MISSING or not end or not content.endswith(end):
        raise ValueError("the text has other bytes than its ids")
    found = next(_cut(content[: len(content) - len(end)], count), None)
    if found is None:
        raise ValueError("no ids have these bytes")
    return list(found)


def _cut(text: bytes, count: int) -> Iterator[Sequence[int]]:
    """The ways to write `text` as so many ids, those with a long beginning first."""
    if count == 0:
        if not text:
            yield ()
        return
    for length in range(len(text) - count + 1, 0, -1):
        first = parts().get(text[:length])
        if first is not None:
            for rest in _cut(text[length:], count - 1):
                yield (first, *rest)


@cache
def parts() -> dict[bytes, int]:
    """The ordinary ids by their bytes, those that begin or end amid a character: no others are ever missing. Made once,
    in 0.1 s: call it before any request waits.
    """
    return {word: id for id, word in enumerate(vocabulary()) if word[0] & 0xC0 == 0x80 or _is_cut(word)}


def _is_cut(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return True
    return False


LLGUIDANCE = "llguidance"
"""The trait of a server that has llguidance."""

VOCABULARY = LAST_LEGAL + 1
"""How many ids the vocabulary of gpt-oss has; a model with another one speaks by its chat template."""


class Llama(ServerKind):
    """llama.cpp's servers. `shared` is whether several tenants use them."""

    name = NAME
    naming = "; see its --alias"
    keeps_connections = False  # behind a stream it hangs up, and says that it doesn't
    streams_alone = True

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self._salts = set[str | None]()
        self._disarming = Disarming()

    async def facts(self, ask: Ask, wanted: Wanted) -> ServerFacts:
        status, body = await ask("POST", COMPLETION, _PROBE)
        if status not in (200, 400):
            raise self.refusal(status, body)
        props = await self.props(ask)
        model, context_tokens, vocabulary = await self.served_model(ask, wanted)
        guided = status == 200
        traits = frozenset({LLGUIDANCE} if guided else ())
        found = ServerFacts(COMPLETION, model, context_tokens, places=props.total_slots, traits=traits)
        if vocabulary == VOCABULARY:
            await asyncio.to_thread(parts)  # now, as no stream may wait for it
            return found
        names = f"{model} {PurePath(props.model_path).name}"
        speech = await self._disarming.speech_of(self.pieces(ask, model), partial(self._prompt_text, ask), names)
        return msgspec.structs.replace(found, speech=speech, constrains=guided)

    async def serves(self, ask: Ask, facts: ServerFacts, wanted: Wanted) -> bool:
        return (await self.props(ask)).total_slots == facts.places and await super().serves(ask, facts, wanted)

    async def render(self, ask: Ask, facts: ServerFacts, transcript: Transcript) -> list[int]:
        """The ids of a prompt: the template makes a text, which is then cut into ids."""
        disarmed = await self._disarming.disarm(self.pieces(ask, facts.model), transcript)
        body = tokenize_body(await self._prompt_text(ask, disarmed))
        return read(await self.ask_body(ask, TOKENIZE, body), TextIds).tokens

    async def cut(self, ask: Ask, text: str) -> list[int]:
        return read(await self.ask_body(ask, TOKENIZE, tokenize_body(text, marks=False)), TextIds).tokens

    def request(self, facts: ServerFacts, generation: Generation) -> Request:
        cached, guided = self.caches(generation.cache_salt), LLGUIDANCE in facts.traits
        body = request_body(generation, facts.context_tokens, cached=cached, guided=guided)
        return Request(COMPLETION, body)

    def passed_members(self, passed: Passed) -> dict[str, Any]:
        """The member that keeps cached prompts apart, where there are several tenants; it knows no priorities."""
        if passed.file is not None:
            return {}
        return {"cache_prompt": self.caches(passed.cache_salt) if passed.cache_salt else not self._shared}

    def answer(self, generation: Generation) -> LlamaAnswer:
        sampling = generation.sampling
        return LlamaAnswer(logprobs=sampling.logprobs, stop_ids=sampling.stop_ids, decoded=generation.decoded)

    def caches(self, salt: str | None) -> bool:
        """Whether a prompt with this salt may be matched with what is cached."""
        if not self._shared:
            self._salts.add(salt)
            self._shared = len(self._salts) > 1
            if self._shared:
                event(logger, logging.WARNING, "prompts are no longer cached: this llama.cpp can't separate tenants")
        return not self._shared

    async def props(self, ask: Ask) -> Props:
        """How a server is set up."""
        body = await self.ask_body(ask, "/props")
        try:
            return read(body, Props)
        except EngineError as error:
            raise EngineUnavailable("the server does not report its settings; is it llama.cpp?") from error

    def pieces(self, ask: Ask, model: str) -> Pieces:
        """A function that cuts a text into pieces, marks among them."""

        async def pieces(text: str) -> Sequence[tuple[int, str]]:
            body = await self.ask_body(ask, TOKENIZE, tokenize_body(text, pieces=True))
            found = read(body, _Pieces).tokens
            return [(each.id, each.piece if isinstance(each.piece, str) else "") for each in found]

        return pieces

    async def _prompt_text(self, ask: Ask, transcript: Transcript) -> str:
        """The text that the template makes."""
        return read(await self.ask_body(ask, TEMPLATE, template_body(transcript)), _Prompt).prompt
