"""The kind of servers that llama.cpp's are.

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
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import PurePath

import msgspec

from service.engine.llama import wire
from service.engine.pass_through import Passed
from service.engine.port import LEAST_LOGPROB, EngineError, EngineUnavailable, Generation, TokenLogprobs
from service.engine.servers.answer import Answer
from service.engine.servers.kind import Ask, Facts, Request, Wanted
from service.engine.servers.speech import Disarming, Pieces, speech_of
from service.harmony.tokens import LAST_LEGAL, byte_table, vocabulary
from service.logs import event
from service.markup.speech import Transcript

logger = logging.getLogger(__name__)

REPLACEMENT = "\ufffd"
"""Stands for bytes that never become a character. The bytes themselves can't be recovered from it."""

_ENDS = {"eos": "stop", "limit": "length"}

MAX_MISSING = 16
"""The most ids that may be missing at once: a character has 4 bytes, and what a grammar holds back is no longer."""


class LlamaAnswer(Answer):
    """A stream."""

    name = wire.NAME

    def __init__(self, *, logprobs: int | None, stop_ids: tuple[int, ...], decoded: bool = False) -> None:
        super().__init__(logprobs=logprobs, decoded=decoded)
        self._stop_ids = stop_ids
        self._count = 0
        """How many ids were sampled."""

    def _take(self, payload: bytes) -> None:
        event = wire.read_event(payload)
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

    def _add(self, event: wire.Event) -> None:
        missing, self._count = event.tokens_predicted - self._count - len(event.tokens), event.tokens_predicted
        found: list[int] = []
        if self._decoded:
            self._text.append(event.content)
            if missing > 0:
                self.lost.append((len(self._tokens), event.content))
        elif missing > 0:
            if REPLACEMENT in event.content or len(event.tokens) > 1:
                raise EngineError("the llama.cpp server left out ids that its text doesn't tell")
            try:
                found = missing_ids(event.content.encode(), event.tokens[0], missing)
            except ValueError as error:
                raise EngineError("the llama.cpp server left out ids that its text doesn't tell") from error
        self._tokens += [*found, *event.tokens]
        if self._alternatives is not None:
            if len(event.completion_probabilities) != len(event.tokens):
                raise EngineError("the llama.cpp server sent tokens without their log probabilities")
            self._logprobs += [TokenLogprobs(LEAST_LOGPROB)] * len(found)
            self._logprobs += [self._read(each, self._alternatives) for each in event.completion_probabilities]

    def _read(self, given: wire.Probability, most: int) -> TokenLogprobs:
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


GUIDED = "llguidance"
"""The trait of a server that has llguidance."""

VOCABULARY = LAST_LEGAL + 1
"""How many ids the vocabulary of gpt-oss has; a model with another one speaks by its chat template."""


class Llama:
    """llama.cpp's servers. `shared` is whether several tenants use them."""

    name = wire.NAME
    health = "/health"
    keeps_connections = False  # behind a stream it hangs up, and says that it doesn't
    notices_hang_ups = True  # it can't be ended otherwise, and has told at the beginning what was cached
    streams_alone = True

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self._salts = set[str | None]()
        self._disarming = Disarming()

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """As the kind has it."""
        status, body = await ask("POST", wire.COMPLETION, wire.PROBE)
        if status not in (200, 400):
            raise wire.read_refusal(status, body)
        served, harmony = await self._served(ask, wanted)
        traits = frozenset({GUIDED}) if status == 200 else frozenset[str]()
        if harmony:
            await asyncio.to_thread(parts)  # now, as no stream may wait for it
            return msgspec.structs.replace(served, traits=traits)
        path = wire.read_props(await _asked(ask, "/props")).model_path
        speech = await speech_of(pieces_of(ask), partial(_written, ask), f"{served.model} {PurePath(path).name}")
        return msgspec.structs.replace(served, traits=traits, speech=speech, constrains=GUIDED in traits)

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        """As the kind has it."""
        served, _ = await self._served(ask, wanted)
        found = msgspec.structs.replace(served, traits=facts.traits, speech=facts.speech, constrains=facts.constrains)
        return found == facts

    async def _served(self, ask: Ask, wanted: Wanted) -> tuple[Facts, bool]:
        """The server's facts, and whether its model has the vocabulary of gpt-oss. Raises as `facts`."""
        slots = wire.read_props(await _asked(ask, "/props")).total_slots
        body, terms = await _asked(ask, "/v1/models"), wanted()
        served = next((each for each in wire.read_models(body).data if terms.model in ("", each.id)), None)
        if served is None:
            raise EngineUnavailable(f"the llama.cpp server does not serve the model {terms.model!r}; see its --alias")
        meta = served.meta
        if meta is None or not meta.n_ctx:
            raise EngineUnavailable("the llama.cpp server does not say how long its model's context is; is it recent?")
        return Facts(wire.COMPLETION, served.id, meta.n_ctx, places=slots), meta.n_vocab == VOCABULARY

    async def render(self, ask: Ask, facts: Facts, transcript: Transcript) -> list[int]:
        """As the kind has it: the template makes a text, which is then cut into ids."""
        prompt = await _written(ask, await self._disarming.disarmed(pieces_of(ask), transcript))
        return wire.read_ids(await _asked(ask, wire.TOKENIZE, wire.tokenize_body(prompt)))

    async def cut(self, ask: Ask, text: str) -> list[int]:
        """As the kind has it."""
        return wire.read_ids(await _asked(ask, wire.TOKENIZE, wire.tokenize_body(text, marks=False)))

    def request(self, facts: Facts, generation: Generation) -> Request:
        """As the kind has it."""
        cached, guided = self.caches(generation.cache_salt), GUIDED in facts.traits
        body = wire.request_body(generation, facts.context_tokens, cached=cached, guided=guided)
        return Request(wire.COMPLETION, body)

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """As the kind has it: it knows no priorities."""
        return {"cache_prompt": self.caches(passed.cache_salt)}

    def caches(self, salt: str | None) -> bool:
        """Whether a prompt with this salt may be matched with what is cached."""
        if not self._shared:
            self._salts.add(salt)
            self._shared = len(self._salts) > 1
            if self._shared:
                event(logger, logging.WARNING, "prompts are no longer cached: llama.cpp can't keep tenants' apart")
        return not self._shared

    def answer(self, generation: Generation) -> LlamaAnswer:
        """As the kind has it."""
        sampling = generation.sampling
        return LlamaAnswer(logprobs=sampling.logprobs, stop_ids=sampling.stop_ids, decoded=generation.decoded)

    def refused(self, status: int, body: bytes) -> EngineError:
        """As the kind has it."""
        return wire.read_refusal(status, body)


def pieces_of(ask: Ask) -> Pieces:
    """A function that cuts a text into pieces, marks among them."""

    async def pieces(text: str) -> Sequence[tuple[int, str]]:
        found = wire.read_pieces(await _asked(ask, wire.TOKENIZE, wire.tokenize_body(text, pieces=True)))
        return [(each.id, each.piece if isinstance(each.piece, str) else "") for each in found]

    return pieces


async def _written(ask: Ask, transcript: Transcript) -> str:
    """The text that the template makes. Raises as `_asked`."""
    return wire.read_prompt(await _asked(ask, wire.TEMPLATE, wire.template_body(transcript)))


async def _asked(ask: Ask, path: str, body: bytes | None = None) -> bytes:
    """The body of the server's answer. Raises EngineError where it refuses."""
    status, body = await ask("GET" if body is None else "POST", path, body)
    if status != 200:
        raise wire.read_refusal(status, body)
    return body
