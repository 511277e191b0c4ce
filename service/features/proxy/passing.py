"""A request that is passed on to a server: its body, our error for a refusal of it, and its answer as it comes.

An answer is searched for the ends of its events, the end of the stream, and its usage; all else goes through as it
came, but that each line of a stream ends with LF. Whole events alone go out, so that an error can follow each of them.
For servers that notice a hang-up only in a stream, we ask for a stream and make the whole answer of it.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from io import StringIO
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import msgspec

from service.engine.port import (
    EngineBroke,
    EngineError,
    EngineUnavailable,
    FormFile,
    Passed,
    PassedRefusal,
    PassedReply,
    PassedUsage,
)
from service.engine.servers.answer import DONE, MAX_EVENT_BYTES, LineEnds
from service.engine.servers.connection import BROKEN, ServerConnection
from service.engine.servers.engine import TRY_ANOTHER, ServersEngine
from service.engine.servers.kind import (
    SHOWN_CHARS,
    UNREADABLE,
    Envelope,
    ReportedError,
    Request,
    ServerChanged,
    refusal,
    said_in,
)
from service.engine.servers.server import EngineServer, headers_of

NOT_SERVED = (404, 405, 501)
"""A server that lacks an endpoint, or has a model that is not for it."""

OURS = (401, 403, 407, 408, 425, 429)
"""Statuses of a matter between the server and us, none of the client's business."""

MAX_WORD_CHARS = 64
"""How long the code and the param of an error may be."""

GENERATED = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Paths whose answers may be streams."""

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""Members that make an answer a stream with all that a whole answer has."""

USAGE_BYTES = 2048
"""The longest usage that is looked for, as JSON."""

END_OF_EVENT = b"\n\n"

_TOLD = re.compile(
    rb"^(?:data: ?(?P<done>\[DONE\]|\{\s*\"type\"\s*:\s*\"message_stop\".*)"
    rb"|(?:data|error): ?(?P<error>\{\s*\"(?:error|object|type)\"\s*:.*))",
    re.MULTILINE,
)
"""A line of an event that may be more than a piece of the answer. No text of a model's can be one: in JSON, newlines
are escaped."""

_SIGNS = (DONE, b'"error"', b'"message_stop"')
"""Such a line contains one of these."""

_OF_USAGE = b'"usage"'
_USAGE = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
"""The quotes would be escaped in a text of a model's."""

_Count = Annotated[int, msgspec.Meta(ge=0)]

MAX_STREAM_BYTES = 64 << 20
"""The longest stream that becomes one answer: a context of tokens, with alternatives for each."""

_GROWING = ("text", "content", "reasoning_content", "name", "arguments")
"""Texts of which a stream tells piece by piece."""

_DATA = b"data: "

ACCEPTED = "application/json, text/event-stream"
TEXTS = frozenset({"text/plain", "text/vtt", "text/srt", "application/x-subrip"})
"""The types of a transcription that is no JSON, which a form may ask for."""
EVENTS = "text/event-stream"
JSON = "application/json"

_TYPE = re.compile(
    r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}(?:; ?[a-z0-9]+=[a-z0-9.,+-]{1,64})?", re.IGNORECASE
)
"""A type of a file that goes on."""

TAIL_SECONDS = 1
"""The time that the end of a stream may take behind its last event."""


class _Cached(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    """A usage by the names of Chat Completions, of Anthropic's messages, and of decisions."""

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Cached | None = None
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    input_tokens_details: _Cached | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None

    def after(self, before: PassedUsage | None) -> PassedUsage:
        """The tokens that it tells of; of those that it doesn't, what was told before."""
        known = before or PassedUsage(0, 0, 0)
        details = self.prompt_tokens_details or self.input_tokens_details
        read, cached = self.cache_read_input_tokens, None if details is None else details.cached_tokens
        sent, said = (self.input_tokens, self.output_tokens)
        if sent is not None:  # Anthropic's input tokens are those that no cache had, nor was given
            sent += (read or 0) + (self.cache_creation_input_tokens or 0)
            cached = cached if read is None else read
        sent, said = (self.prompt_tokens if sent is None else sent, self.completion_tokens if said is None else said)
        return PassedUsage(
            known.input_tokens if sent is None else sent,
            known.cached_tokens if cached is None else cached,
            known.output_tokens if said is None else said,
        )


def passed_refusal(name: str, hidden: Iterable[str], status: int, body: bytes) -> EngineError:
    """The error for an answer with an HTTP error status. `hidden` are secrets to cut from the server's message."""
    said = said_in(body)
    if (400 <= status < 500 and status not in OURS) or status in NOT_SERVED:
        message = said.message if isinstance(said.message, str) else ""
        for secret in hidden:
            message = message.replace(secret, "…")
        if not message:
            message = f"The {name} server rejected the request with status {status}, without a reason."
        status = 404 if status in NOT_SERVED else status
        return PassedRefusal(message[:SHOWN_CHARS], status, code=_word(said.code), param=_word(said.param))
    error = refusal(name, status, "")
    # the refusal of a single request says nothing of the server
    return EngineUnavailable(str(error)) if isinstance(error, ServerChanged) else error


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_WORD_CHARS else None


def form_body(members: Mapping[str, Any], file: FormFile) -> tuple[bytes, str]:
    """The form of these fields, each a text, a list of them or a literal, with a file; and its Content-Type.

    It is written anew, so that a server reads the fields that were checked here, however the client wrote them.
    """
    boundary = secrets.token_hex(16)
    head, parts = f"--{boundary}\r\nContent-Disposition: form-data; name=".encode(), bytearray()
    for name, member in members.items():
        value = msgspec.json.decode(member) if isinstance(member, msgspec.Raw) else member
        for each in cast(list[Any], value) if isinstance(value, list) else [value]:
            text = each.encode() if isinstance(each, str) else msgspec.json.encode(each)
            parts += head + b'"%b"\r\n\r\n%b\r\n' % (name.encode(), text)
    named = file.name.replace("\\", "").replace('"', "%22").encode()
    kind = file.kind if _TYPE.fullmatch(file.kind) else "application/octet-stream"
    parts += head + b'"file"; filename="%b"\r\nContent-Type: %b\r\n\r\n' % (named, kind.encode())
    return b"".join(
        (parts, file.content, f"\r\n--{boundary}--\r\n".encode())
    ), f"multipart/form-data; boundary={boundary}"


class PassingEngine(ServersEngine):
    """Servers of a kind as one engine, to which requests in the servers' own API are passed on, too."""

    @asynccontextmanager
    async def pass_on(self, passed: Passed) -> AsyncGenerator[PassedReply, None]:
        """Ask one of the servers; see the port of requests that are passed on."""
        ticket = self._ticket(passed)
        async with aclosing(self._tries(ticket)) as tries:
            async for held in tries:
                async with AsyncExitStack() as stack:
                    try:
                        reply = await stack.enter_async_context(_pass_on(held.server, passed))
                    except TRY_ANOTHER as error:
                        ticket.fails(held.server, error)
                        continue
                    yield reply
                    return


@asynccontextmanager
async def _pass_on(server: EngineServer, passed: Passed) -> AsyncGenerator["ServerReply", None]:
    """A server's reply to a request that is passed on. Leaving early hangs up. Raises as `EngineServer.stream` does."""
    facts, kind, file = server.fetch_facts(), server.kind, passed.file
    folded = kind.streams_alone and not passed.stream and passed.path in GENERATED
    own = {"model": facts.model, **kind.passed_members(passed), **(STREAMED if folded else {})}
    if file is None:
        body, content_type = msgspec.json.encode({**passed.members, **own}), JSON
    else:
        body, content_type = form_body({**passed.members, **own}, file)
    # no client may see its address, nor the key for it
    hidden = [each for each in (server.pool.api_key, urlsplit(server.url).netloc, server.place.host) if each]
    accepted = ACCEPTED if file is None else ", ".join((ACCEPTED, *sorted(TEXTS)))
    headers = {**headers_of(passed), **dict(passed.headers), "accept": accepted, "content-type": content_type}
    refused = partial(passed_refusal, kind.name, hidden)
    async with server.posting(Request(passed.path, body), headers, refused, None) as connection:
        yield ServerReply(server, connection, hidden, folded=folded, texts=file is not None)


class ServerReply:
    """An answer with status 200, whose body is unread. `usage` is that which it has reported last, so far."""

    def __init__(
        self, server: EngineServer, connection: ServerConnection, hidden: list[str], *, folded: bool, texts: bool
    ) -> None:
        """`hidden` are secrets that no client may see. A stream becomes one answer if it is to be `folded`. `texts` may
        come where they were asked for. Raises EngineError for an answer that nobody asked for.
        """
        answer, self._name = connection.answer, server.kind.name
        encoding = answer.headers.get("content-encoding", "identity")
        known = answer.content_type in (EVENTS, JSON) or (texts and answer.content_type in TEXTS)
        if not known or encoding != "identity":
            raise EngineError(f"the {self._name} server sent neither JSON nor a stream of events")
        self._streams = answer.content_type == EVENTS
        self.events = self._streams and not folded
        self.content_type = JSON if self._streams else answer.content_type
        self.usage: PassedUsage | None = None
        self._server, self._connection, self._hidden = server, connection, hidden
        self._line_ends = LineEnds()
        self._rest = bytearray()
        """The beginning of the next event."""
        self._searched = 0
        self._tail = b""
        """The last bytes, in which a usage may begin."""

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See the port."""
        async with aclosing(self._whole_events() if self._streams else self._bytes()) as pieces:
            if self.events or not self._streams:
                async for piece in pieces:
                    yield piece
                return
            fold = _Fold(self._name)
            async for piece in pieces:
                fold.feed(piece)
            yield fold.answer()

    async def end(self) -> None:
        """See the port."""
        with suppress(BROKEN):
            async with asyncio.timeout(TAIL_SECONDS):
                await self._connection.read()

    async def _bytes(self) -> AsyncGenerator[bytes, None]:
        """The bytes as they come, searched for the usage. Raises EngineUnavailable."""
        try:
            while piece := await self._connection.read():
                self._look(piece)
                yield piece
        except BROKEN as error:
            raise self._server.broke() from error

    async def _whole_events(self) -> AsyncGenerator[bytes, None]:
        """The whole events of what has come, up to the end of the stream. Raises EngineError."""
        async for piece in self._bytes():
            events, over = self._cut(piece)
            if events:
                yield events
            if isinstance(over, EngineError):
                raise over
            if over:
                return
        raise EngineBroke(f"the {self._name} server broke off")

    def _cut(self, piece: bytes) -> tuple[bytes, EngineError | bool]:
        """The events that these bytes complete, and whether the stream is over behind them, or the error that it
        reports there. Raises EngineError.
        """
        self._rest += self._line_ends.normalize(piece)
        at = self._rest.rfind(END_OF_EVENT, max(0, self._searched - 1))  # it may have begun
        end = at + len(END_OF_EVENT) if at >= 0 else 0
        events, self._searched = bytes(self._rest[:end]), len(self._rest) - end
        del self._rest[:end]
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EngineError(f"the {self._name} server sent an event of more than {MAX_EVENT_BYTES} bytes")
        if any(sign in events for sign in _SIGNS):
            for told in _TOLD.finditer(events):
                if told["done"]:
                    return events[: told.end()] + END_OF_EVENT, True
                if (failure := self._failure(told["error"])) is not None:
                    before = events.rfind(END_OF_EVENT, 0, told.start())  # it may have a line with its type
                    return events[: before + len(END_OF_EVENT)] if before >= 0 else b"", failure
        return events, False

    def _failure(self, line: bytes) -> EngineError | None:
        """The server's error if an event reports one."""
        try:
            said = msgspec.json.decode(line, type=Envelope)
        except UNREADABLE:
            return None
        if said.error is None and said.object != "error":
            return None
        code = said.error.code if isinstance(said.error, ReportedError) else said.code
        return passed_refusal(self._name, self._hidden, code if isinstance(code, int) else 500, line)

    def _look(self, piece: bytes) -> None:
        """Look for a usage. Streams may report it again and again: the last counts, the first for what that lacks."""
        window = self._tail + piece
        self._tail = window[-USAGE_BYTES:]
        for at in (window.find(_OF_USAGE) if self.usage is None else -1, window.rfind(_OF_USAGE)):
            found = _USAGE.match(window[at : at + USAGE_BYTES]) if at >= 0 else None
            if found is not None:
                with suppress(*UNREADABLE):  # nobody's count
                    self.usage = msgspec.json.decode(found[1], type=_Usage).after(self.usage)


class _Fold:
    """One answer, made of the events of a stream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._choices: dict[int, dict[str, Any]] = {}
        self._others: dict[str, Any] = {}
        self._bytes = 0

    def feed(self, events: bytes) -> None:
        """Add whole events. Raises EngineError."""
        self._bytes += len(events)
        if self._bytes > MAX_STREAM_BYTES:
            raise EngineError(f"the {self._name} server sent more than {MAX_STREAM_BYTES} bytes of one answer")
        try:
            for line in events.splitlines():
                if line.startswith(_DATA) and not line.endswith(DONE):
                    chunk = msgspec.json.decode(line[len(_DATA) :])
                    for choice in chunk.pop("choices", ()):
                        index = choice.get("index", 0)
                        _grow(self._choices.setdefault(index, {"index": index, "finish_reason": None}), choice)
                    self._others |= chunk
        except (*UNREADABLE, AttributeError, TypeError) as error:
            raise EngineError(f"the {self._name} server sent an unreadable chunk") from error

    def answer(self) -> bytes:
        """The answer, once the stream has ended."""
        choices = [choice for _, choice in sorted(self._choices.items())]
        kind = "text_completion" if choices and all("text" in choice for choice in choices) else "chat.completion"
        for choice in choices if kind == "chat.completion" else ():
            message = choice["message"] = {"role": "assistant", "content": None} | choice.pop("delta", {})
            if "tool_calls" in message:
                message["tool_calls"] = [call for _, call in sorted(message["tool_calls"].items())]
        whole = {**self._others, "object": kind, "choices": choices}
        return msgspec.json.encode(whole, enc_hook=StringIO.getvalue)


def _grow(said: dict[str, Any], piece: dict[str, Any]) -> None:
    """Adds a piece to a part of an answer: texts and lists go on, objects do by member, and all else is replaced."""
    for name, more in piece.items():
        if name == "tool_calls":
            for call in more or ():
                _grow(said.setdefault(name, {}).setdefault(call.pop("index", 0), {}), call)
        elif isinstance(more, dict):
            _grow(said.setdefault(name, {}), cast(dict[str, Any], more))
        elif isinstance(more, list):
            said.setdefault(name, []).extend(more)
        elif isinstance(more, str) and name in _GROWING:
            said.setdefault(name, StringIO()).write(more)
        elif more is not None:
            said[name] = more
