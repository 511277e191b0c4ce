"""A request that is passed on to a server: its body, our error for a refusal of it, and its answer as it comes.

An answer is searched for the ends of its events, the end of the stream, and its usage; all else goes through as it
came. Whole events alone go out, so that an error can follow each of them. For servers that notice a hang-up only in
a stream, we ask for a stream and make the whole answer of it.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Annotated, Any

import msgspec

from service.engine.pass_through import Passed, PassedRefusal, PassedUsage
from service.engine.port import EngineBroke, EngineError, EngineUnavailable
from service.engine.servers.answer import MAX_EVENT_BYTES
from service.engine.servers.connection import Connection
from service.engine.servers.kind import SHOWN_CHARS, UNREADABLE, ServerChanged, refusal

NOT_SERVED = (404, 405, 501)
"""A server that lacks an endpoint, or has a model that is not for it."""

OURS = (401, 403, 407, 408, 425, 429)
"""Statuses of a matter between the server and us, none of the client's business."""

MAX_WORD_CHARS = 64
"""How long the code and the param of an error may be."""

_ENCODE = msgspec.json.Encoder().encode

GENERATED = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Paths whose answers may be streams."""

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""Members that make an answer a stream with all that a whole answer has."""

USAGE_BYTES = 2048
"""The longest usage that is looked for, as JSON."""

_BOUNDARIES = (b"\n\n", b"\n\r\n")
"""The bytes at the end of an event."""

_TOLD = re.compile(
    rb"^(?:data: ?(?P<done>\[DONE\])|(?:data|error): ?(?P<error>\{\s*\"(?:error|object)\"\s*:.*))", re.MULTILINE
)
"""A line of an event that may be more than a piece of the answer. No text of a model's can be one: in JSON, newlines
are escaped."""

_SIGNS = (b"[DONE]", b'"error"')
"""Such a line contains one of these."""

_OF_USAGE = b'"usage"'
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
"""The quotes would be escaped in a text of a model's."""

_Count = Annotated[int, msgspec.Meta(ge=0)]

MAX_STREAM_BYTES = 64 << 20
"""The longest stream that becomes one answer: a context of tokens, with alternatives for each."""

_DATA = b"data: "
_DONE = b"[DONE]"

_OTHERS = msgspec.json.Decoder(dict[str, msgspec.Raw])

BROKEN = OSError
"""The error that a connection may raise."""

ACCEPTED = "application/json, text/event-stream"
EVENTS = "text/event-stream"
JSON = "application/json"

TAIL_SECONDS = 1
"""The time that the end of a stream may take behind its last event."""


class Said(msgspec.Struct):
    """The error that a server reports."""

    message: Any = None
    code: Any = None
    param: Any = None


class _Envelope(msgspec.Struct):
    """The body of an error: OpenAI's envelope, vLLM's own of before, or FastAPI's."""

    error: Said | str | None = None
    message: Any = None
    detail: Any = None


def passed_body(passed: Passed, model: str, own: Mapping[str, object]) -> bytes:
    """The body to post: the members as they came, then the server's model and the kind's `own` members over them."""
    return _ENCODE({**passed.members, "model": model, **own})


def passed_refusal(name: str, status: int, body: bytes, hidden: Iterable[str]) -> EngineError:
    """The error for an answer with an HTTP error status. `hidden` are secrets to cut from the server's message."""
    said = said_in(body)
    if (400 <= status < 500 and status not in OURS) or status in NOT_SERVED:
        message = said.message if isinstance(said.message, str) else ""
        for secret in hidden:
            message = message.replace(secret, "…")
        if not message:
            message = f"The {name} server refused this with status {status}, and says no more."
        status = 404 if status in NOT_SERVED else status
        return PassedRefusal(message[:SHOWN_CHARS], status, code=_word(said.code), param=_word(said.param))
    error = refusal(name, status, "")
    # the refusal of a single request says nothing of the server
    return EngineUnavailable(str(error)) if isinstance(error, ServerChanged) else error


def said_in(body: bytes) -> Said:
    """The error in a body; empty where it has none."""
    try:
        said = msgspec.json.decode(body, type=_Envelope)
    except UNREADABLE:
        return Said()
    if isinstance(said.error, Said):
        return said.error
    return Said(said.error or said.message or said.detail)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_WORD_CHARS else None


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
    """The usage of an answer, found while its pieces pass by. Streams may report it again and again: the last
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
        """`name` is the kind of server, `hidden` the secrets that no client may see in its messages."""
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
        """Raises the error of the stream, behind the events that came before it."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Raises EngineBroke where a stream ended without saying that it is over."""
        if not self.done:
            raise EngineBroke(f"the {self._name} server broke off")

    def _read(self, line: bytes) -> EngineError | None:
        """The server's error if an event reports one, else None."""
        try:
            said = msgspec.json.decode(line, type=_Failed)
        except UNREADABLE:
            return None
        if said.error is None and said.object != "error":
            return None
        code = said.error.code if isinstance(said.error, _Code) else said.code
        return passed_refusal(self._name, code if isinstance(code, int) else 500, line, self._hidden)


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    type: str = "function"
    function: _Function = _Function()


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] = []


class _Logprobs(msgspec.Struct):
    content: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str | None = None
    delta: _Delta | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []


_CHUNK = msgspec.json.Decoder(_Chunk)


class _Answer:
    """One choice."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}
        self._calls: dict[int, list[_Call]] = {}
        self._logprobs: list[msgspec.Raw] = []
        self._finish: str | None = None

    def add(self, choice: _Choice) -> None:
        """Add what a chunk has of it."""
        self._finish = choice.finish_reason or self._finish
        self._logprobs += (choice.logprobs and choice.logprobs.content) or []
        delta = choice.delta or _Delta()
        for name, said in (
            ("text", choice.text),
            ("content", delta.content),
            ("reasoning_content", delta.reasoning_content),
        ):
            if said is not None:
                self._said.setdefault(name, []).append(said)
        for call in delta.tool_calls:
            self._calls.setdefault(call.index, []).append(call)

    def whole(self, index: int) -> dict[str, Any]:
        """All of it."""
        said = {name: "".join(pieces) for name, pieces in self._said.items()}
        choice: dict[str, Any] = {"index": index, "finish_reason": self._finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        if "text" in said:
            return choice | said
        message: dict[str, Any] = {"role": "assistant", "content": None, **said}
        if self._calls:
            message["tool_calls"] = [_joined(pieces) for _, pieces in sorted(self._calls.items())]
        return choice | {"message": message}


def _joined(pieces: list[_Call]) -> dict[str, Any]:
    name = "".join(each.function.name or "" for each in pieces)
    arguments = "".join(each.function.arguments or "" for each in pieces)
    id = next((each.id for each in pieces if each.id is not None), None)
    return {"id": id, "type": pieces[0].type, "function": {"name": name, "arguments": arguments}}


class Whole:
    """The answer made of a stream."""

    def __init__(self, name: str) -> None:
        """`name` is the kind of server."""
        self._name = name
        self._answers: dict[int, _Answer] = {}
        self._others: dict[str, msgspec.Raw] = {}
        self._bytes = 0

    def feed(self, events: bytes) -> None:
        """Add whole events. Raises EngineError."""
        self._bytes += len(events)
        if self._bytes > MAX_STREAM_BYTES:
            raise EngineError(f"the {self._name} server sent more than {MAX_STREAM_BYTES} bytes of one answer")
        for line in events.splitlines():
            if line.startswith(_DATA) and not line.endswith(_DONE):
                self._add(line[len(_DATA) :])

    def _add(self, payload: bytes) -> None:
        try:
            chunk, others = _CHUNK.decode(payload), _OTHERS.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineError(f"the {self._name} server sent something that is no chunk") from error
        for choice in chunk.choices:
            self._answers.setdefault(choice.index, _Answer()).add(choice)
        others.pop("choices", None)
        self._others |= others

    def answer(self) -> bytes:
        """The answer, once the stream has ended."""
        choices = [answer.whole(index) for index, answer in sorted(self._answers.items())]
        kind = "chat.completion" if any("message" in choice for choice in choices) else "text_completion"
        return msgspec.json.encode({**self._others, "object": kind, "choices": choices})


class ServerReply:
    """An answer with status 200, whose body is unread."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        hidden: list[str],
        broken: Callable[[], EngineUnavailable],
    ) -> None:
        """`hidden` are secrets that no client may see; `broken` notes that the connection broke, and returns the error.
        Raises EngineError for an answer that nobody asked for.
        """
        answer = connection.answer
        encoding = answer.headers.get("content-encoding", "identity")
        if answer.content_type not in (EVENTS, JSON) or encoding != "identity":
            raise EngineError(f"the {name} server answered with something that is neither JSON nor a stream of events")
        self.events = answer.content_type == EVENTS
        self._connection = connection
        self._broken = broken
        self._read = PassedEvents(name, hidden)
        self._found = UsageFound()

    @property
    def usage(self) -> PassedUsage | None:
        """See the port."""
        return self._found.usage

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See the port."""
        while piece := await self._next():
            if self.events:
                piece = self._read.feed(piece)
            self._found.look(piece)
            if piece:
                yield piece
            if self.events:
                self._read.check()
                if self._read.done:
                    return
        if self.events:
            self._read.end()

    async def end(self) -> None:
        """See the port."""
        with suppress(BROKEN):
            async with asyncio.timeout(TAIL_SECONDS):
                await self._connection.read()

    async def _next(self) -> bytes:
        """The next bytes, none at their end. Raises EngineUnavailable."""
        try:
            return await self._connection.read()
        except BROKEN as error:
            raise self._broken() from error


class FoldedReply:
    """A stream as one answer."""

    events = False

    def __init__(self, name: str, stream: ServerReply) -> None:
        self._stream = stream
        self._whole = Whole(name)

    @property
    def usage(self) -> PassedUsage | None:
        """See the port."""
        return self._stream.usage

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See the port."""
        async with aclosing(self._stream.pieces()) as pieces:
            async for piece in pieces:
                self._whole.feed(piece)
        yield self._whole.answer()

    async def end(self) -> None:
        """See the port."""
        await self._stream.end()
