"""What differs between kinds of servers: how one is asked, what its answers mean, what it says of itself.

Pure but for `facts` and `serves`, which ask by what they are given. A kind knows nothing of one server: what it found
out of one is in its Facts.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Protocol, runtime_checkable

import msgspec

from service.engine.pass_through import Passed
from service.engine.port import (
    Defaults,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Generation,
)
from service.engine.servers.answer import Answer
from service.markup.speech import Speech, Transcript

SHOWN_CHARS = 500
"""How much of a server's own words an error repeats."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding what a server sent may raise."""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""An id as a server sends it: of any vocabulary, but never what no vocabulary has."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""How many of something, as a server sends it."""

Ask = Callable[[str, str, bytes | None], Awaitable[tuple[int, bytes]]]
"""Ask the server something small: the method, the path and the body, to the status and the body. Raises BROKEN."""


class ServerChanged(EngineUnavailable):
    """The server no longer has the endpoint or the model that it had: ask it again what it has."""


class RefusedAlone(EngineRefused):
    """The server doesn't know what it was asked: this request alone is wrong, unless the server says by now that it
    serves something else.
    """


class Request(msgspec.Struct, frozen=True):
    """What is posted to a server. `end` is what to post to end the generation that it asks for, whose stream then says
    so; None where it can only be hung up on.
    """

    path: str
    body: bytes
    end: "Request | None" = None


class Facts(msgspec.Struct, frozen=True):
    """What a server serves: the path for token ids, the model, its context in tokens, how it samples by default.

    `places` is how many generations it can have under way at once, where more would keep it from answering; 0 is as
    many as come. `traits` is what else its kind was told, and `speech` how a model speaks that doesn't speak Harmony.
    `logprobs` and `constrains` are as the model's card has them.
    """

    endpoint: str
    model: str
    context_tokens: int
    defaults: Defaults = Defaults()
    places: int = 0
    traits: frozenset[str] = frozenset()
    speech: Speech | None = None
    logprobs: bool = True
    constrains: bool = True


class ServerLoad(msgspec.Struct, frozen=True):
    """What a server tells of its load: how many generations run and wait there, how much of its cache those that run
    have (1 is all), and for how many tokens that has room; 0 is not told.
    """

    running: int = 0
    waiting: int = 0
    used: float = 0.0
    room: int = 0


class Terms(msgspec.Struct, frozen=True):
    """What a server has to serve: the model, where empty is the first that it lists, and the context in tokens, which
    counts where it doesn't say; 0 is nothing said.
    """

    model: str = ""
    context_tokens: int = 0


Wanted = Callable[[], Terms]
"""The terms of this moment: which model is wanted may be for the first server that is up to say."""


@runtime_checkable
class Telling(Protocol):
    """What a kind of server has besides that tells its load."""

    async def told(self, ask: Ask) -> ServerLoad:
        """What it tells, as far as it does. Raises EngineError, and what `ask` does."""
        ...


@runtime_checkable
class Templating(Protocol):
    """What a kind of server has besides whose models may speak by a chat template."""

    async def render(self, ask: Ask, facts: Facts, transcript: Transcript) -> list[int]:
        """The ids that the model's chat template makes. Raises EngineError, and what `ask` does."""
        ...

    async def cut(self, ask: Ask, text: str) -> list[int]:
        """The ids of a text in which nothing is a mark. Raises as `render`."""
        ...


@runtime_checkable
class Disarms(Protocol):
    """What a kind of server has besides that makes its prompts itself."""

    async def disarmed(self, ask: Ask, facts: Facts, generation: Generation) -> Generation:
        """The generation without marks in what is said. Raises EngineError, and what `ask` does."""
        ...


class Kind(Protocol):
    """A kind of server."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    @property
    def health(self) -> str:
        """The path that answers 200 where a server is well."""
        ...

    @property
    def keeps_connections(self) -> bool:
        """Whether a connection can be used again behind a stream; where not, each request has its own."""
        ...

    @property
    def notices_hang_ups(self) -> bool:
        """Whether hanging up ends a generation soon; where not, it is ended as well."""
        ...

    @property
    def streams_alone(self) -> bool:
        """Whether it notices only in a stream that it was hung up on: a whole answer is made of one then."""
        ...

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """What a server serves. Raises EngineError where that isn't what is wanted, or it doesn't say.

        The model has to be asked for last: what is wanted then still is so when the server counts as up.
        """
        ...

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        """Whether a server that is up still serves what it did; cheap. Raises as `facts`."""
        ...

    def request(self, facts: Facts, generation: Generation) -> Request:
        """What to post for a generation. Raises EngineRefused for what it can't do."""
        ...

    def answer(self, generation: Generation) -> Answer:
        """What reads the stream that comes back."""
        ...

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """What the body of a request that is passed on has to say besides, whatever it says itself: what keeps tenants
        apart, and who goes first.
        """
        ...

    def refused(self, status: int, body: bytes) -> EngineError:
        """What an answer with an HTTP error stands for."""
        ...


def refusal(kind: str, status: int, message: str) -> EngineError:
    """What an error with this status is to us. Only a refusal repeats `message`, the server's: clients see it."""
    if status in (401, 407):
        return ServerChanged(f"the {kind} server asks for another key; see HARMONIUM_ENGINE_API_KEY")
    if status in (403, 404, 405):
        return ServerChanged(f"the {kind} server does not serve this any more")
    if status in (429, 503):
        return EngineOverloaded(f"the {kind} server takes no more work now")
    if status in (502, 504):
        return EngineUnavailable(f"a gateway can't reach the {kind} server")
    if 400 <= status < 500:
        return EngineRefused(message[:SHOWN_CHARS] or f"status {status}")
    return EngineError(f"the {kind} server failed with status {status}; its log says why")
