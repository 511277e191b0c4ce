"""The wire of llama.cpp's server: requests to JSON, its answers, and our errors for its own. Pure.

`/completion` alone takes token ids and gives token ids. Its defaults aren't neutral, so we send every parameter of
sampling. A server ignores an unknown key in silence, so tests check each on a real one.
"""

from typing import Any, TypeVar

import msgspec

from service.engine.llama.grammar import GUIDED, constraint
from service.engine.llama.grammar import guided as guided_by
from service.engine.port import EngineError, EngineRefused, EngineUnavailable, Generation
from service.engine.servers.kind import UNREADABLE, Count, TokenId, refusal
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


class _Error(msgspec.Struct):
    message: str = ""
    code: int = 500


class Event(msgspec.Struct):
    """One event of a stream, or the body of an error. `tokens_predicted` counts all that were sampled so far."""

    content: str = ""
    tokens: list[TokenId] = []
    tokens_predicted: Count = 0
    stop: bool = False
    stop_type: str = ""
    completion_probabilities: list[Probability] = []
    timings: _Timings | None = None
    error: _Error | None = None


class Token(msgspec.Struct):
    """An id, and the text that it stands for, as bytes where it is no text."""

    id: int
    piece: str | list[int] = ""


class _Pieces(msgspec.Struct):
    tokens: list[Token]


class _Ids(msgspec.Struct):
    tokens: list[TokenId]


class _Prompt(msgspec.Struct):
    prompt: str


class _Meta(msgspec.Struct):
    n_vocab: int = 0
    n_ctx: int = 0


class _Model(msgspec.Struct):
    id: str
    meta: _Meta | None = None


class Models(msgspec.Struct):
    """The answer of `GET /v1/models`."""

    data: list[_Model]


class Props(msgspec.Struct):
    """The answer of `GET /props`."""

    total_slots: int = 1
    model_path: str = ""


_EVENT = msgspec.json.Decoder(Event)
_PROPS = msgspec.json.Decoder(Props)
_MODELS = msgspec.json.Decoder(Models)
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


def read_prompt(body: bytes) -> str:
    """The text of a prompt. Raises EngineError."""
    return _read(body, _Prompt).prompt


def read_ids(body: bytes) -> list[int]:
    """The ids of a text. Raises EngineError."""
    return _read(body, _Ids).tokens


def read_pieces(body: bytes) -> list[Token]:
    """The ids of a text, and what they stand for. Raises EngineError."""
    return _read(body, _Pieces).tokens


def _read(body: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=type)
    except UNREADABLE as error:
        raise EngineError("the llama.cpp server sent something else than it was asked for") from error


def read_event(data: bytes) -> Event:
    """An event of a stream. Raises EngineError if it isn't one, and the error of an error event."""
    try:
        event = _EVENT.decode(data)
    except UNREADABLE as error:
        raise EngineError("the llama.cpp server sent something that is no event") from error
    if event.error is not None:
        raise refusal(NAME, event.error.code, event.error.message)
    return event


def read_models(body: bytes) -> Models:
    """The models that a server serves. Raises EngineUnavailable if it doesn't say."""
    try:
        return _MODELS.decode(body)
    except UNREADABLE as error:
        raise EngineUnavailable("the llama.cpp server does not say what it serves; is it one?") from error


def read_props(body: bytes) -> Props:
    """How a server is set up. Raises EngineUnavailable if it doesn't say."""
    try:
        return _PROPS.decode(body)
    except UNREADABLE as error:
        raise EngineUnavailable("the llama.cpp server does not say how it is set up; is it one?") from error


def read_refusal(status: int, body: bytes) -> EngineError:
    """The error that an answer with an HTTP error status stands for."""
    try:
        error = _EVENT.decode(body).error
    except UNREADABLE:
        error = None
    return refusal(NAME, status, error.message if error else "")
