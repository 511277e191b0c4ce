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
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import PurePath
from typing import Any

import msgspec

from service.engine.llama import wire
from service.engine.pass_through import Passed
from service.engine.port import LEAST_LOGPROB, EngineError, Generation, TokenLogprobs
from service.engine.servers.answer import Answer
from service.engine.servers.kind import Ask, Facts, Kind, Request, Wanted, read_event
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
        event = read_event(wire.NAME, wire.EVENT, payload)
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

    def _add(self, event: wire.StreamEvent) -> None:
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


class Llama(Kind):
    """llama.cpp's servers. `shared` is whether several tenants use them."""

    name = wire.NAME
    naming = "; see its --alias"
    keeps_connections = False  # behind a stream it hangs up, and says that it doesn't
    streams_alone = True

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared
        self._salts = set[str | None]()
        self._disarming = Disarming()

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        status, body = await ask("POST", wire.COMPLETION, wire.PROBE)
        if status not in (200, 400):
            raise self.refused(status, body)
        props = await self.props(ask)
        model, context_tokens, vocabulary = await self.served(ask, wanted)
        guided = status == 200
        traits = frozenset({GUIDED} if guided else ())
        found = Facts(wire.COMPLETION, model, context_tokens, places=props.total_slots, traits=traits)
        if vocabulary == VOCABULARY:
            await asyncio.to_thread(parts)  # now, as no stream may wait for it
            return found
        names = f"{model} {PurePath(props.model_path).name}"
        speech = await speech_of(self.pieces(ask, model), partial(self._written, ask), names)
        return msgspec.structs.replace(found, speech=speech, constrains=guided)

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        return (await self.props(ask)).total_slots == facts.places and await super().serves(ask, facts, wanted)

    async def render(self, ask: Ask, facts: Facts, transcript: Transcript) -> list[int]:
        """The ids of a prompt: the template makes a text, which is then cut into ids."""
        disarmed = await self._disarming.disarmed(self.pieces(ask, facts.model), transcript)
        body = wire.tokenize_body(await self._written(ask, disarmed))
        return wire.read(await self.asked(ask, wire.TOKENIZE, body), wire.Ids).tokens

    async def cut(self, ask: Ask, text: str) -> list[int]:
        return wire.read(await self.asked(ask, wire.TOKENIZE, wire.tokenize_body(text, marks=False)), wire.Ids).tokens

    def request(self, facts: Facts, generation: Generation) -> Request:
        cached, guided = self.caches(generation.cache_salt), GUIDED in facts.traits
        body = wire.request_body(generation, facts.context_tokens, cached=cached, guided=guided)
        return Request(wire.COMPLETION, body)

    def passed(self, passed: Passed) -> dict[str, Any]:
        return {"cache_prompt": self.caches(passed.cache_salt)}  # it knows no priorities

    def answer(self, generation: Generation) -> LlamaAnswer:
        sampling = generation.sampling
        return LlamaAnswer(logprobs=sampling.logprobs, stop_ids=sampling.stop_ids, decoded=generation.decoded)

    def caches(self, salt: str | None) -> bool:
        """Whether a prompt with this salt may be matched with what is cached."""
        if not self._shared:
            self._salts.add(salt)
            self._shared = len(self._salts) > 1
            if self._shared:
                event(logger, logging.WARNING, "prompts are no longer cached: llama.cpp can't keep tenants' apart")
        return not self._shared

    async def props(self, ask: Ask) -> wire.Props:
        """How a server is set up."""
        return wire.read_props(await self.asked(ask, "/props"))

    def pieces(self, ask: Ask, model: str) -> Pieces:
        """A function that cuts a text into pieces, marks among them."""

        async def pieces(text: str) -> Sequence[tuple[int, str]]:
            body = await self.asked(ask, wire.TOKENIZE, wire.tokenize_body(text, pieces=True))
            found = wire.read(body, wire.Pieces).tokens
            return [(each.id, each.piece if isinstance(each.piece, str) else "") for each in found]

        return pieces

    async def _written(self, ask: Ask, transcript: Transcript) -> str:
        """The text that the template makes."""
        return wire.read(await self.asked(ask, wire.TEMPLATE, wire.template_body(transcript)), wire.Prompt).prompt
