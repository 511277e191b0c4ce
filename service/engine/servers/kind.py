"""The differences between kinds of servers: how to ask one, how to read its answers, how to find its facts.

Pure but for the methods that ask, by the function they are given. A kind knows nothing of one server: the findings
about one are in its Facts.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from service.engine.port import (
    Defaults,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Generation,
    Passed,
    Speech,
    Transcript,
)
from service.engine.servers.answer import Answer

MODELS = "/v1/models"

SHOWN_CHARS = 500

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that decoding a server's bytes may raise."""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""An id as a server sends it: of any vocabulary, but within the bounds of all."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]

Ask = Callable[[str, str, bytes | None], Awaitable[tuple[int, bytes]]]
"""Ask the server something small: the method, the path and the body, to the status and the body. Raises BROKEN."""


Pieces = Callable[[str], Awaitable[Sequence[tuple[int, str]]]]
"""A text as the server cuts it, in which marks are marks: each id with its text."""

Written = Callable[[Transcript], Awaitable[str | None]]
"""The text of a prompt as the server's template writes it, None where it tells none. Raises EngineError."""


class Speeches:
    """How models speak that don't speak Harmony, found by asking a server. As it stands: nobody here knows."""

    async def speech_of(self, pieces: Pieces, written: Written, model: str) -> Speech:
        """The speech of a model, by how its server cuts texts and what its template writes. Raises EngineError."""
        raise EngineUnavailable(f"the model {model!r} doesn't use Harmony, and this service supports no other model")

    async def disarm(self, pieces: Pieces, transcript: Transcript, *, sees: bool = False) -> Transcript:
        """A transcript in which only our own marks are spelled, of pictures for one that `sees`. Raises EngineError."""
        raise EngineRefused("this service supports no models with a chat template")


class ServerChanged(EngineUnavailable):
    """The server no longer has the endpoint or the model that it had: ask for its facts again."""


class RefusedAlone(EngineRefused):
    """The server rejects this request alone, unless a new probe shows that it now serves something else."""


class Request(msgspec.Struct, frozen=True):
    """A body to post. `end` is the request that ends this generation, where it can't only be hung up on."""

    path: str
    body: bytes
    end: "Request | None" = None


class ServerFacts(msgspec.Struct, frozen=True):
    """The facts of a server: the path for token ids, the model, its context in tokens, how it samples by default.

    `places` is how many generations it can have under way at once, where more would keep it from answering; 0 is as
    many as come. `traits` are other facts of its kind, and `speech` how a model speaks that doesn't speak Harmony.
    `constrains` is as the model's card has it. `version` is the server's own, empty where it doesn't tell one, and
    `advice` a sentence for its operator, where there is one to be given.
    """

    endpoint: str
    model: str
    context_tokens: int
    defaults: Defaults = Defaults()
    places: int = 0
    traits: frozenset[str] = frozenset()
    speech: Speech | None = None
    constrains: bool = True
    version: str = ""
    advice: str = ""


class ServerLoad(msgspec.Struct, frozen=True):
    """The load that a server reports: how many generations run and wait there, the share of its cache that the running
    ones have (1 is all), and for how many tokens that has room; 0 is not told.
    """

    running: int = 0
    waiting: int = 0
    used: float = 0.0
    room: int = 0


class ServerTerms(msgspec.Struct, frozen=True):
    """The terms that a server has to meet: the model, where empty is the first that it lists, and the context in
    tokens, which counts where it doesn't say; 0 is nothing said.
    """

    model: str = ""
    context_tokens: int = 0


Wanted = Callable[[], ServerTerms]
"""The terms of this moment: the first server that is up may have to say which model is wanted."""


class ServedModel(NamedTuple):
    """A model that a server lists: its id, its context in tokens, and the size of its vocabulary, 0 where not said."""

    model: str
    context_tokens: int
    vocabulary: int


class _Meta(msgspec.Struct):
    n_ctx: Count = 0
    n_vocab: int = 0


class _Model(msgspec.Struct):
    """A model that is listed, with what vLLM, OpenRouter and llama.cpp call its context."""

    id: str
    max_model_len: Count | None = None
    context_length: Count | None = None
    meta: _Meta | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class ServerKind(ABC):
    """A kind of server. Methods that ask raise EngineError, and the errors of `ask`."""

    name: str
    naming = ""
    """The hint behind a message that a server has no such model."""
    loading = "; it answers once its model is loaded"
    """The hint behind a message that a server isn't there, or not ready; empty where it would be none."""
    health = "/health"
    keeps_connections = True
    """Whether a connection can be used again behind a stream; where not, each request has its own."""
    streams_alone = False
    """Whether it notices a hang-up only in a stream: a whole answer is made from a stream then."""

    @abstractmethod
    async def facts(self, ask: Ask, wanted: Wanted) -> ServerFacts:
        """The facts of a server. Raises EngineError where they don't fit `wanted`, or it doesn't say.

        The model has to be asked for last, so that `wanted` still holds when the server counts as up.
        """

    @abstractmethod
    def request(self, facts: ServerFacts, generation: Generation) -> Request:
        """The request of a generation. Raises EngineRefused where the server can't do it."""

    @abstractmethod
    def answer(self, generation: Generation) -> Answer:
        """The reader of the stream that comes back."""

    async def serves(self, ask: Ask, facts: ServerFacts, wanted: Wanted) -> bool:
        """Whether a server that is up still serves the same; cheap."""
        return (await self.served_model(ask, wanted))[:2] == (facts.model, facts.context_tokens)

    async def load(self, ask: Ask) -> ServerLoad:
        """The load that it reports, as far as it does."""
        return ServerLoad()

    async def render(self, ask: Ask, facts: ServerFacts, transcript: Transcript) -> list[int]:
        """The ids that the model's chat template makes."""
        raise EngineRefused(f"with {self.name}, only gpt-oss is served")

    async def cut(self, ask: Ask, text: str) -> list[int]:
        """The ids of a text in which nothing is a mark."""
        raise EngineError(f"the {self.name} server has left out ids")

    async def disarm(self, ask: Ask, facts: ServerFacts, generation: Generation) -> Generation:
        """The generation without marks in its texts, where the server makes the prompt itself."""
        return generation

    def passed_members(self, passed: Passed) -> dict[str, Any]:
        """Members that the body of a passed request must have, whatever it says itself: they keep tenants apart, and
        set the priority. None where the server refuses members that it doesn't know.
        """
        return {}

    def refusal(self, status: int, body: bytes) -> EngineError:
        """The error that an answer with an HTTP error status stands for."""
        return read_refusal(self.name, status, body)

    async def ask_body(self, ask: Ask, path: str, body: bytes | None = None) -> bytes:
        """The body of an answer with status 200: to a POST where there is a `body`. Any other raises EngineError."""
        status, said = await ask("GET" if body is None else "POST", path, body)
        if status != 200:
            raise self.refusal(status, said)
        return said

    async def served_model(self, ask: Ask, wanted: Wanted) -> ServedModel:
        """The model that a server serves. Raises EngineError where it isn't the wanted one."""
        unsaid = EngineUnavailable(f"the {self.name} server does not list its models; is it a {self.name} server?")
        listed, terms = decode(_MODELS, await self.ask_body(ask, MODELS), unsaid).data, wanted()
        found = next((each for each in listed if terms.model in ("", each.id)), None)
        if found is None:
            raise EngineUnavailable(f"the {self.name} server does not serve the model {terms.model!r}{self.naming}")
        meta = found.meta or _Meta()
        context = found.max_model_len or found.context_length or meta.n_ctx or terms.context_tokens
        if not context:
            raise EngineUnavailable(
                f"the {self.name} server does not report its model's context length; set HARMONIUM_CONTEXT_TOKENS"
            )
        return ServedModel(found.id, context, meta.n_vocab)


class ServerEvent(msgspec.Struct):
    error: Any = None
    object: Any = None


class ReportedError(msgspec.Struct):
    message: Any = None
    code: Any = None
    param: Any = None


class Envelope(msgspec.Struct):
    """The body of an error, or an event that may be one: OpenAI's envelope, vLLM's own of before, or FastAPI's."""

    error: ReportedError | str | None = None
    object: Any = None
    message: Any = None
    detail: Any = None
    code: Any = None


E = TypeVar("E", bound=ServerEvent)
T = TypeVar("T")

_MODELS = msgspec.json.Decoder(_Models)
_ENVELOPE = msgspec.json.Decoder(Envelope)


def decode(decoder: "msgspec.json.Decoder[T]", body: bytes, otherwise: EngineError) -> T:
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise otherwise from error


def said_in(body: bytes) -> ReportedError:
    """The error in a body; empty where it has none."""
    try:
        said = _ENVELOPE.decode(body)
    except UNREADABLE:
        return ReportedError()
    if isinstance(said.error, ReportedError):
        return said.error
    return ReportedError(said.error or said.message or said.detail)


def read_refusal(name: str, status: int, body: bytes) -> EngineError:
    """The error that an event or an answer stands for, by the status of the error in it, else by the given one."""
    return refusal(name, *said_status(status, body))


def read_event(
    name: str,
    decoder: "msgspec.json.Decoder[E]",
    payload: bytes,
    refused: Callable[[str, int, bytes], EngineError] = read_refusal,
) -> E:
    """An event of a stream. Raises EngineError if it isn't one, and the error of an error event, by `refusal`."""
    event = decode(decoder, payload, EngineError(f"the {name} server sent an unreadable event"))
    if event.error is not None or event.object == "error":
        raise refused(name, 500, payload)
    return event


def said_status(status: int, body: bytes) -> tuple[int, str]:
    """The status that the error in a body names, else the given one, and its message."""
    said = said_in(body)
    named = isinstance(said.code, int) and 400 <= said.code < 600
    return said.code if named else status, said.message if isinstance(said.message, str) else ""


def refusal(kind: str, status: int, message: str) -> EngineError:
    """Our error for an error status. Only a refusal repeats `message`, the server's: clients see it."""
    if status in (401, 407):
        return ServerChanged(f"the {kind} server rejects the key; correct HARMONIUM_ENGINE_API_KEY")
    if status in (403, 404, 405):
        return ServerChanged(f"the {kind} server no longer serves this")
    if status in (429, 503):
        return EngineOverloaded(f"the {kind} server is full")
    if status in (502, 504):
        return EngineUnavailable(f"a gateway can't reach the {kind} server")
    if 400 <= status < 500:
        return EngineRefused(message[:SHOWN_CHARS] or f"status {status}")
    return EngineError(f"the {kind} server failed with status {status}; its log says why")
