"""The differences between kinds of servers: how to ask one, how to read its answers, how to find its facts.

Pure but for `facts` and `serves`, which ask by the function they are given. A kind knows nothing of one server: the
findings about one are in its Facts.
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
"""Errors that decoding a server's bytes may raise."""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""An id as a server sends it: of any vocabulary, but within the bounds of all."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""How many of something, as a server sends it."""

Ask = Callable[[str, str, bytes | None], Awaitable[tuple[int, bytes]]]
"""Ask the server something small: the method, the path and the body, to the status and the body. Raises BROKEN."""


class ServerChanged(EngineUnavailable):
    """The server no longer has the endpoint or the model that it had: ask for its facts again."""


class RefusedAlone(EngineRefused):
    """The server rejects this request alone, unless a new probe shows that it now serves something else."""


class Request(msgspec.Struct, frozen=True):
    """A body to post to a server. `end` is the request that ends this generation, whose stream then says
    so; None where it can only be hung up on.
    """

    path: str
    body: bytes
    end: "Request | None" = None


class Facts(msgspec.Struct, frozen=True):
    """The facts of a server: the path for token ids, the model, its context in tokens, how it samples by default.

    `places` is how many generations it can have under way at once, where more would keep it from answering; 0 is as
    many as come. `traits` are other facts of its kind, and `speech` how a model speaks that doesn't speak Harmony.
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
    """The load that a server reports: how many generations run and wait there, the share of its cache that the running
    ones have (1 is all), and for how many tokens that has room; 0 is not told.
    """

    running: int = 0
    waiting: int = 0
    used: float = 0.0
    room: int = 0


class Terms(msgspec.Struct, frozen=True):
    """The terms that a server has to meet: the model, where empty is the first that it lists, and the context in
    tokens, which counts where it doesn't say; 0 is nothing said.
    """

    model: str = ""
    context_tokens: int = 0


Wanted = Callable[[], Terms]
"""The terms of this moment: the first server that is up may have to say which model is wanted."""


@runtime_checkable
class Telling(Protocol):
    """The addition of a kind whose servers report their load."""

    async def told(self, ask: Ask) -> ServerLoad:
        """The load that it reports, as far as it does. Raises EngineError, and the errors of `ask`."""
        ...


@runtime_checkable
class Templating(Protocol):
    """The addition of a kind whose models may speak by a chat template."""

    async def render(self, ask: Ask, facts: Facts, transcript: Transcript) -> list[int]:
        """The ids that the model's chat template makes. Raises EngineError, and the errors of `ask`."""
        ...

    async def cut(self, ask: Ask, text: str) -> list[int]:
        """The ids of a text in which nothing is a mark. Raises as `render`."""
        ...


@runtime_checkable
class Disarms(Protocol):
    """The addition of a kind whose servers make their prompts themselves."""

    async def disarmed(self, ask: Ask, facts: Facts, generation: Generation) -> Generation:
        """The generation without marks in its texts. Raises EngineError, and the errors of `ask`."""
        ...


class Kind(Protocol):
    """A kind of server."""

    @property
    def name(self) -> str:
        """Its name in messages."""
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
        """Whether it notices a hang-up only in a stream: a whole answer is made from a stream then."""
        ...

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """The facts of a server. Raises EngineError where they don't fit `wanted`, or it doesn't say.

        The model has to be asked for last, so that `wanted` still holds when the server counts as up.
        """
        ...

    async def serves(self, ask: Ask, facts: Facts, wanted: Wanted) -> bool:
        """Whether a server that is up still serves the same; cheap. Raises as `facts`."""
        ...

    def request(self, facts: Facts, generation: Generation) -> Request:
        """The request of a generation. Raises EngineRefused where the server can't do it."""
        ...

    def answer(self, generation: Generation) -> Answer:
        """The reader of the stream that comes back."""
        ...

    def passed(self, passed: Passed) -> Mapping[str, object]:
        """Members that the body of a passed request must have, whatever it says itself: they keep tenants apart, and
        set the priority.
        """
        ...

    def refused(self, status: int, body: bytes) -> EngineError:
        """The error that an answer with an HTTP error status stands for."""
        ...


def refusal(kind: str, status: int, message: str) -> EngineError:
    """Our error for an error status. Only a refusal repeats `message`, the server's: clients see it."""
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
