"""What is looked at in an answer that is passed on: where its events end, how the stream ends, what it says of usage.

All else goes through as it came. Whole events alone go out, so that an error can follow each of them. Pure.
"""

import re
from typing import Annotated, Any

import msgspec

from service.engine.pass_through import PassedUsage
from service.engine.port import EngineBroke, EngineError
from service.engine.servers.answer import MAX_EVENT_BYTES
from service.engine.servers.kind import UNREADABLE
from service.engine.servers.passing import passed_refusal

USAGE_BYTES = 2048
"""The longest usage that is looked for, as JSON."""

_BOUNDARIES = (b"\n\n", b"\n\r\n")
"""What is at the end of an event."""

_TOLD = re.compile(
    rb"^(?:data: ?(?P<done>\[DONE\])|(?:data|error): ?(?P<error>\{\s*\"(?:error|object)\"\s*:.*))", re.MULTILINE
)
"""A line of an event that may be more than a piece of the answer. No text of a model's can be one: in JSON, newlines
are escaped."""

_SIGNS = (b"[DONE]", b'"error"')
"""What such a line has somewhere."""

_OF_USAGE = b'"usage"'
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
"""In a text of a model's the quotes would be escaped."""

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Cached(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Cached | None = None


class _Code(msgspec.Struct):
    code: Any = None


class _Failed(_Code):
    """An event that may be an error, as OpenAI and as older vLLMs have it."""

    error: _Code | str | None = None
    object: str = ""


class UsageFound:
    """What an answer says of its tokens, found while its pieces go by. Streams may say it again and again: the last
    counts.
    """

    def __init__(self) -> None:
        self.usage: PassedUsage | None = None
        self._tail = b""

    def look(self, piece: bytes) -> None:
        """Look at the next piece of the answer."""
        window = self._tail + piece
        self._tail = window[-USAGE_BYTES:]
        at = window.rfind(_OF_USAGE)
        found = _USAGE.match(window[at : at + USAGE_BYTES]) if at >= 0 else None
        if found is None:
            return
        try:
            said = msgspec.json.decode(found[1], type=_Usage)
        except UNREADABLE:
            return  # nobody's count
        details = said.prompt_tokens_details
        self.usage = PassedUsage(
            said.prompt_tokens or 0, (details and details.cached_tokens) or 0, said.completion_tokens or 0
        )


class PassedEvents:
    """The bytes of a stream to whole events."""

    def __init__(self, name: str, hidden: list[str], *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """`name` is what the kind of server is called, `hidden` what nobody may see of what it says."""
        self._name = name
        self._hidden = hidden
        self._max_event_bytes = max_event_bytes
        self._rest = bytearray()
        self._searched = 0
        self._failure: EngineError | None = None
        self.done = False
        """Whether the stream has said that it is at its end."""

    def feed(self, piece: bytes) -> bytes:
        """The whole events of what has come, up to the end of the stream or to an error. Raises EngineError."""
        self._rest += piece
        start = max(0, self._searched - 2)  # a boundary may have begun
        end = max(at + len(each) if (at := self._rest.rfind(each, start)) >= 0 else 0 for each in _BOUNDARIES)
        events, self._searched = bytes(self._rest[:end]), len(self._rest) - end
        del self._rest[:end]
        if len(self._rest) > self._max_event_bytes:
            raise EngineError(f"the {self._name} server sent an event of more than {self._max_event_bytes} bytes")
        if not any(sign in events for sign in _SIGNS):
            return events
        for told in _TOLD.finditer(events):
            if told["done"]:
                self.done = True
                return events[: told.end()] + b"\n\n"
            if (failure := self._read(told["error"])) is not None:
                self._failure = failure
                return events[: told.start()]
        return events

    def check(self) -> None:
        """Raises what the stream failed with, behind the events that came before that."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Raises EngineBroke where a stream that is over has not said so."""
        if not self.done:
            raise EngineBroke(f"the {self._name} server broke off")

    def _read(self, line: bytes) -> EngineError | None:
        """What an event says that the server failed with, if it says that."""
        try:
            said = msgspec.json.decode(line, type=_Failed)
        except UNREADABLE:
            return None
        if said.error is None and said.object != "error":
            return None
        code = said.error.code if isinstance(said.error, _Code) else said.code
        return passed_refusal(self._name, code if isinstance(code, int) else 500, line, self._hidden)
