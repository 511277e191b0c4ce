"""The dialects of Chat Completions and of Anthropic's Messages: a response as their answer, its events as theirs, and
their servers' words for a refusal.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import ClassVar

import msgspec

from service.api import events
from service.api.events import Event
from service.api.request import ChatBody
from service.api.response import FunctionCall, Reasoning, Response, decode_response, with_bytes
from service.decoding import Json
from service.errors import ApiError
from service.features.chats.chat import (
    APART,
    Thinking,
    TranslatedChat,
    call_of,
    completion,
    facts_of,
    failure_of,
    finish_reason,
    limits_of,
    read_chat,
    usage_of,
)
from service.features.chats.messages import (
    block_of,
    message,
    opening,
    signature_of,
    stop_of,
    tokens_of,
)
from service.settings.core import CoreSettings
from service.web.dialect import Dialect, TranslatedBody
from service.web.errors import JsonResponse, of_messages
from service.web.sse import KEEP_ALIVE, OBFUSCATION_STEP, Encoder

_TOO_LONG = re.compile(r"This model's maximum context length is (\d+) tokens, and the prompt has (.*? tokens)\..*")
_NO_CALL = re.compile(r"No tool call found for [\w ]+ with call_id (.*?)\. It stands at .*")
_NO_OUTPUT = re.compile(r"No tool output found for function call (.*?)\. Send its output.*")


class Translated(Dialect):
    """Another API's, for one request that was translated."""

    words: ClassVar[dict[re.Pattern[str], str]]
    """How its own servers say what we say, where clients read that: docs/clients.md lists who does."""
    told: Callable[[Response, Thinking], Json]
    """The answer that a response is."""

    def __init__(self, request: TranslatedChat) -> None:
        self._request = request._replace(body=b"")  # a run may take minutes, and holds no body

    def answer(self, content: object) -> JsonResponse:
        """See Dialect. Raises ApiError where the response failed, whatever it said before."""
        response = decode_response(content) if isinstance(content, bytes) else content
        assert isinstance(response, Response)
        if (failure := failure_of(response)) is not None:
            raise failure
        return JsonResponse(self.told(response, self._request.thinking))

    def word(self, refusal: ApiError) -> None:
        """See Dialect."""
        self._request.names.rename(refusal)
        for ours, theirs in self.words.items():
            refusal.message = ours.sub(theirs, refusal.message)


class ChatCompletions(Translated):
    """Chat Completions'."""

    name = "chat_completions"
    words: ClassVar = {
        _NO_CALL: "Messages with role 'tool' must be a response to a preceding message with 'tool_calls', and none has "
        r"the call \1.",
        _NO_OUTPUT: "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        r"'tool_call_id'. The following tool_call_ids did not have response messages: \1",
    }

    told = staticmethod(completion)

    def encoder(self, *, obfuscate: bool) -> Encoder:
        """See Dialect."""
        return ChatEncoder(self._request, obfuscate=obfuscate)


def translate(body: bytes, settings: CoreSettings) -> Generator[None, None, TranslatedBody]:
    """The translation of a chat completion's body, for whoever has no request. Raises InvalidRequest."""
    translated = yield from read_chat(body, limits_of(settings))
    return TranslatedBody(translated.body, ChatBody, ChatCompletions(translated))


class Messages(Translated):
    """Anthropic's."""

    name = "messages"
    words: ClassVar = {
        _TOO_LONG: r"prompt is too long: \2 > \1 maximum",
        _NO_CALL: r"unexpected `tool_use_id` found in `tool_result` blocks: \1. Each `tool_result` block must have a "
        "corresponding `tool_use` block in the previous message.",
        _NO_OUTPUT: r"`tool_use` ids were found without `tool_result` blocks immediately after: \1. Each `tool_use` "
        "block must have a corresponding `tool_result` block in the next message.",
    }

    told = staticmethod(message)

    def encoder(self, *, obfuscate: bool) -> Encoder:
        """See Dialect."""
        return MessagesEncoder(self._request.thinking)


class ChatEncoder(Encoder):
    """The encoder of Chat Completions: a chunk for the role, one for each delta and each call, and one for the end.

    Events that have no chunk are left out. A last chunk has the usage where the request asks for it.
    """

    def __init__(self, request: TranslatedChat, *, obfuscate: bool) -> None:
        super().__init__(obfuscate=obfuscate)
        self._usage, self._reasons = request.usage, request.thinking == "shown"
        self._head = b""
        """The beginning of each chunk, up to its choices; empty before the first one."""
        self._calls: dict[int, int] = {}
        """The number of each call among the calls, by its place in the output."""
        self._spoken: dict[str, str] = {}
        """The item of which a member of the deltas has told last."""

    def keep_alive(self) -> bytes:
        """See Encoder. Its events have no kind that a client could pass over."""
        return KEEP_ALIVE

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None:
        """Write the chunks of the events at the buffer's end, each in one piece."""
        for event in batch:
            if isinstance(event, events.OutputTextDelta):
                logprobs = self._logprobs(event) if event.logprobs else b"null"
                self._chunk(buffer, self._text("content", event), event, logprobs)
            elif isinstance(event, events.ReasoningTextDelta):
                if self._reasons:
                    self._chunk(buffer, self._text("reasoning_content", event), event)
            elif isinstance(event, events.FunctionCallArgumentsDelta):
                self._chunk(buffer, self._more(event, "function", "arguments"), event)
            elif isinstance(event, events.CustomToolCallInputDelta):
                self._chunk(buffer, self._more(event, "custom", "input"), event)
            elif isinstance(event, events.OutputItemAdded):
                if (call := call_of(event.item)) is not None:
                    number = self._calls.setdefault(event.output_index, len(self._calls))
                    self._chunk(buffer, self._encoder.encode({"tool_calls": [{"index": number} | call]}))
            elif isinstance(event, events.Terminal):
                self._end(buffer, event.response)
            elif isinstance(event, events.Lifecycle) and not self._head:
                self._open(event.response)
                self._chunk(buffer, b'{"role":"assistant","content":"","refusal":null}')

    def _open(self, response: Response) -> None:
        facts = self._encoder.encode(facts_of(response, "chat.completion.chunk"))
        self._head = b'data: %b,"choices":[' % facts[:-1]

    def _text(self, member: str, event: events.OutputTextDelta | events.ReasoningTextDelta) -> bytes:
        """A delta of a text. The texts of several items stand apart."""
        item, self._spoken[member] = self._spoken.get(member, event.item_id), event.item_id
        return self._encoder.encode({member: event.delta if item == event.item_id else APART + event.delta})

    def _more(
        self, event: events.FunctionCallArgumentsDelta | events.CustomToolCallInputDelta, kind: str, member: str
    ) -> bytes:
        """A delta of a call."""
        call = {"index": self._calls[event.output_index], kind: {member: event.delta}}
        return self._encoder.encode({"tool_calls": [call]})

    def _logprobs(self, event: events.OutputTextDelta) -> bytes:
        known = [with_bytes(msgspec.to_builtins(each)) for each in event.logprobs]
        return self._encoder.encode({"content": known, "refusal": None})

    def _chunk(
        self,
        buffer: bytearray,
        delta: bytes,
        event: events.Delta | None = None,
        logprobs: bytes = b"null",
        finish: bytes = b"null",
    ) -> None:
        """Write a chunk; that of an event is padded."""
        buffer += self._head
        buffer += b'{"index":0,"delta":%b,"logprobs":%b,"finish_reason":%b}]' % (delta, logprobs, finish)
        if self._usage:
            buffer += b',"usage":null'
        if event is None:
            buffer += b"}\n\n"
            return
        ends = self._ends[-len(event.delta) % OBFUSCATION_STEP]
        buffer += ends[event.sequence_number % len(ends)]

    def _end(self, buffer: bytearray, response: Response) -> None:
        """Write the last chunks, or the error that ended the response."""
        if (failure := failure_of(response)) is not None:
            error = {"message": failure.message, "type": failure.type, "param": None, "code": failure.code}
            buffer += b"data: %b\n\n" % self._encoder.encode({"error": error})
            return
        if not self._head:
            self._open(response)
        self._chunk(buffer, b"{}", finish=self._encoder.encode(finish_reason(response)))
        if self._usage:
            buffer += b'%b],"usage":%b}\n\n' % (self._head, self._encoder.encode(usage_of(response)))


class MessagesEncoder(Encoder):
    """The encoder of Messages: blocks one after the other, each from its start to its stop. A text or a thought that
    says nothing is no block.
    """

    done = b""

    def __init__(self, thinking: Thinking) -> None:
        super().__init__(obfuscate=False)
        self._thinking: Thinking = thinking
        self._begun, self._blocks = False, 0
        self._open: int | None = None
        """The place in the output of the item whose block is open."""
        self._argued: int | None = None
        """The place in the output of the call whose arguments have begun."""

    def keep_alive(self) -> bytes:
        """See Encoder."""
        return b'event: ping\ndata: {"type":"ping"}\n\n'

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None:
        """Write the events of the blocks at the buffer's end, each in one piece."""
        for event in batch:
            if isinstance(event, events.OutputTextDelta):
                self._delta(buffer, event, _TEXT, b'"text_delta","text"')
            elif isinstance(event, events.ReasoningTextDelta):
                if self._thinking == "shown":
                    self._delta(buffer, event, _THINKING, b'"thinking_delta","thinking"')
            elif isinstance(event, events.FunctionCallArgumentsDelta):
                if self._argued != event.output_index:  # SDKs can't parse a beginning of white space alone
                    event = msgspec.structs.replace(event, delta=event.delta.lstrip(" \t\r\n"))
                    if not event.delta:
                        continue
                    self._argued = event.output_index
                self._delta(buffer, event, {}, b'"input_json_delta","partial_json"')
            elif isinstance(event, events.OutputItemAdded):
                if isinstance(event.item, FunctionCall):
                    self._start(buffer, event.output_index, block_of(event.item, self._thinking) or {})
            elif isinstance(event, events.OutputItemDone):
                self._end_item(buffer, event)
            elif isinstance(event, events.Terminal):
                self._end(buffer, event.response)
            elif isinstance(event, events.Lifecycle) and not self._begun:
                self._greet(buffer, event.response)

    def _write(self, buffer: bytearray, kind: str, **members: object) -> None:
        buffer += b"event: %b\ndata: %b\n\n" % (kind.encode(), self._encoder.encode({"type": kind, **members}))

    def _greet(self, buffer: bytearray, response: Response) -> None:
        self._begun = True
        self._write(buffer, "message_start", message=opening(response))

    def _start(self, buffer: bytearray, place: int, block: Json) -> None:
        """Open a block for the item at a place of the output, unless that is open."""
        if self._open == place:
            return
        self._stop(buffer)
        self._open = place
        self._write(buffer, "content_block_start", index=self._blocks, content_block=block)

    def _stop(self, buffer: bytearray) -> None:
        if self._open is not None:
            self._write(buffer, "content_block_stop", index=self._blocks)
            self._open, self._blocks = None, self._blocks + 1

    def _delta(self, buffer: bytearray, event: events.Delta, block: Json, kind: bytes) -> None:
        """Write some more of a block. This is the hot path."""
        if self._open != event.output_index:
            self._start(buffer, event.output_index, block)
        buffer += _DELTA % (self._blocks, kind, self._encoder.encode(event.delta))

    def _end_item(self, buffer: bytearray, event: events.OutputItemDone) -> None:
        if isinstance(event.item, Reasoning) and self._thinking != "hidden" and (signature := signature_of(event.item)):
            self._start(buffer, event.output_index, _THINKING)
            delta = {"type": "signature_delta", "signature": signature}
            self._write(buffer, "content_block_delta", index=self._blocks, delta=delta)
        if self._open == event.output_index:
            self._stop(buffer)

    def _end(self, buffer: bytearray, response: Response) -> None:
        """Write the last events, or the error that ended the response."""
        if (failure := failure_of(response)) is not None:
            buffer += b"event: error\ndata: %b\n\n" % self._encoder.encode(of_messages(failure))
            return
        if not self._begun:
            self._greet(buffer, response)
        self._stop(buffer)
        self._write(buffer, "message_delta", delta=stop_of(response), usage=tokens_of(response))
        self._write(buffer, "message_stop")


_TEXT: Json = {"type": "text", "text": ""}
_THINKING: Json = {"type": "thinking", "thinking": "", "signature": ""}
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b:%b}}\n\n'
