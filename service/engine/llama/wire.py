"""The wire of llama.cpp's server: requests to JSON, its answers, and our errors for its own. Pure.

`/completion` alone takes token ids and gives token ids. Its defaults aren't neutral, so we send every parameter of
sampling. A server ignores an unknown key in silence, so tests check each on a real one.
"""

from typing import Any, TypeVar

import msgspec

from service.engine.llama.grammar import GUIDED, constraint
from service.engine.llama.grammar import guided as guided_by
from service.engine.port import EngineError, EngineRefused, EngineUnavailable, Generation
from service.engine.servers.kind import UNREADABLE, Count, Event, TokenId
from service.engine.servers.token_ids import prompt_json
from service.grammar.tags import LAST_MARK
from service.harmony.tokens import ENDS, FIRST_SPECIAL
from service.markup.speech import Transcript

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


class Probability(_Top):
    """A sampled token's."""

    top_logprobs: list[_Top] = []


class _Timings(msgspec.Struct):
    cache_n: Count | None = None


class StreamEvent(Event):
    """One event of a stream. `tokens_predicted` counts all that were sampled so far."""

    content: str = ""
    tokens: list[TokenId] = []
    tokens_predicted: Count = 0
    stop: bool = False
    stop_type: str = ""
    completion_probabilities: list[Probability] = []
    timings: _Timings | None = None


class Token(msgspec.Struct):
    """An id, and the text that it stands for, as bytes where it is no text."""

    id: int
    piece: str | list[int] = ""


class Pieces(msgspec.Struct):
    """A text in pieces."""

    tokens: list[Token]


class Ids(msgspec.Struct):
    """The ids of a text."""

    tokens: list[TokenId]


class Prompt(msgspec.Struct):
    """The text of a prompt."""

    prompt: str


class Props(msgspec.Struct):
    """The answer of `GET /props`."""

    total_slots: int = 1
    model_path: str = ""


EVENT = msgspec.json.Decoder(StreamEvent)
_ENCODE = msgspec.json.Encoder().encode


PROBE = _ENCODE({"prompt": [0], "n_predict": 1, "grammar": f"{GUIDED}start: /a/\n"})
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
    if banned:
        body["logit_bias"] = [[id, False] for id in sorted(banned)]
    return _ENCODE(body)


def template_body(transcript: Transcript) -> bytes:
    """The body that asks for the text of a prompt."""
    return _ENCODE(
        {
            "messages": msgspec.Raw(transcript.messages),
            "tools": msgspec.Raw(transcript.tools),
            "chat_template_kwargs": msgspec.Raw(transcript.options),
            "add_generation_prompt": True,
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
        raise EngineError("the llama.cpp server sent something else than it was asked for") from error


def read_props(body: bytes) -> Props:
    """How a server is set up. Raises EngineUnavailable if it doesn't say."""
    try:
        return read(body, Props)
    except EngineError as error:
        raise EngineUnavailable("the llama.cpp server does not say how it is set up; is it one?") from error
