"""The second port, of engines that are servers: a request in their own API, such as Chat Completions, passed on.

We sample and store nothing here: the server's answer goes to the client. The caller checks the request; an engine only
chooses a server, and sets the tenant's own members.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from service.engine.port import EngineRefused


class FormFile(msgspec.Struct, frozen=True):
    """The file of a form: its name, its type, and its bytes."""

    name: str
    kind: str
    content: bytes


class Passed(msgspec.Struct, frozen=True):
    """A request for a server: its path, and the members of its body but for the model, as each server has its own id
    for that.

    One without a `cache_salt` has no priority either, as its endpoint knows neither. `answers` is how many generations
    it is, `stream` whether they are to be a stream. `model`, `affinity`, `cache_salt`, `priority`, `trace` and `tenant`
    are as those of a generation.
    """

    id: str
    path: str
    members: Mapping[str, msgspec.Raw]
    answers: int = 1
    stream: bool = False
    model: str = ""
    affinity: str = ""
    cache_salt: str = ""
    priority: int = 0
    trace: tuple[tuple[str, str], ...] = ()
    tenant: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """The headers of the request that are for the server too."""
    file: FormFile | None = None
    """The file beside the members, where these are the fields of a form."""


class PassedRefusal(EngineRefused):
    """The server refused it, with this status and in these words, which its sender may see."""

    def __init__(self, message: str, status: int, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class PassedUsage(msgspec.Struct, frozen=True):
    """The usage that an answer reports; `cached_tokens` are among those of the prompt."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int


class PassedReply(Protocol):
    """A server's answer with status 200."""

    @property
    def events(self) -> bool:
        """Whether it is a stream of server-sent events; else it is whole."""
        ...

    @property
    def content_type(self) -> str:
        """The type of an answer that is whole: JSON, or of one to a form any text."""
        ...

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes as they come, of a stream whole events, [DONE] the last of them. Raises EngineError where the
        server says that it failed, or goes away first.
        """
        ...

    @property
    def usage(self) -> PassedUsage | None:
        """The usage that it has reported so far."""
        ...

    async def end(self) -> None:
        """Waits a moment for the end of a stream that has said all: its connection can be used again then."""
        ...


@runtime_checkable
class PassesOn(Protocol):
    """An engine that has servers."""

    def pass_on(self, passed: Passed) -> AbstractAsyncContextManager[PassedReply]:
        """Ask a server. Leaving early hangs up on it, which ends its work. Raises EngineError: a PassedRefusal is the
        server's own.
        """
        ...
