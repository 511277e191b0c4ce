"""Which dialect of the wire a request is answered in: its path says so, and nothing else differs.

Under `/v1` answers are OpenAI's, under `/open-responses/v1` those of the Open Responses specification
(service/api/open_responses.py), and a request for a chat completion is answered by one (service/api/chat.py). All are
made here, at the edge, of the same responses and the same events: what is stored, queued, logged and counted knows no
dialect.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from service.api import events
from service.api.chat import APART, TranslatedChat, call_of, completion, facts_of, failure_of, finish_reason, usage_of
from service.api.events import Event
from service.api.messages import (
    Thinking,
    Told,
    block_of,
    message,
    opening,
    signature_of,
    stop_of,
    tokens_of,
)
from service.api.open_responses import StreamTranslation, open_compaction, open_event, open_response, with_bytes
from service.api.response import FunctionCall, OutputText, Reasoning, Response, decode_response
from service.decoding import Json
from service.errors import ApiError
from service.responses.prompt.compaction import Compacted
from service.web.errors import JsonResponse, of_messages
from service.web.sse import KEEP_ALIVE, OBFUSCATION_STEP, Encoder


class Dialect:
    """OpenAI's, and what the other one differs in."""

    name = "openai"
    prefix = "/v1"
    """The prefix of its paths."""

    def answer(self, content: object) -> JsonResponse:
        """The JSON answer of a Response or anything else, whether still to be encoded or as bytes."""
        return JsonResponse(content)

    def encoder(self, *, obfuscate: bool) -> Encoder:
        """The encoder of one stream of events."""
        return Encoder(obfuscate=obfuscate)

    def word(self, refusal: ApiError) -> None:
        """Have a refusal name parameters as the client knows them."""


class OpenResponses(Dialect):
    """The Open Responses specification's."""

    name = "open_responses"
    prefix = "/open-responses/v1"

    def answer(self, content: object) -> JsonResponse:
        """See Dialect. Objects outside the specification, such as a list of models, are the same in both."""
        if isinstance(content, bytes) and _kind(content).object == "response":
            content = decode_response(content)
        if isinstance(content, Response):
            content = open_response(_plain(content))
        elif isinstance(content, Compacted):
            content = open_compaction(msgspec.json.decode(msgspec.json.encode(content)))
        return JsonResponse(content)

    def encoder(self, *, obfuscate: bool) -> Encoder:
        """See Dialect."""
        return OpenEncoder(obfuscate=obfuscate)


class OpenEncoder(Encoder):
    """The encoder of Open Responses: mostly sse.Encoder's work, as most events are the same in both dialects."""

    def __init__(self, *, obfuscate: bool) -> None:
        super().__init__(obfuscate=obfuscate)
        self._translation = StreamTranslation()

    def keep_alive(self) -> bytes:
        """See Encoder. The specification has no such event."""
        return KEEP_ALIVE

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None:
        """Write the events at the buffer's end, each in one piece."""
        for place, event in enumerate(batch):
            if type(event) in _RENAMED:
                piece = bytearray()
                super().append((event,), piece)
                buffer += piece.replace(*_RENAMED[type(event)], 2)
                continue
            translated = self._translation.event(event)
            if isinstance(translated, events.OutputTextDone) and place + 1 < len(batch):
                following = batch[place + 1]
                if isinstance(following, events.ContentPartDone) and isinstance(following.part, OutputText):
                    # its own log probabilities have no bytes; those of the part that follows have
                    known = tuple(following.part.logprobs)
                    super().append((msgspec.structs.replace(translated, logprobs=known),), buffer)
                    continue
            if isinstance(translated, _NARROWED) or (isinstance(translated, _WITH_LOGPROBS) and translated.logprobs):
                body = open_event(_plain(translated))
                buffer += b"event: %b\ndata: %b\n\n" % (body["type"].encode(), msgspec.json.encode(body))
            else:
                super().append((translated,), buffer)


_TOO_LONG = re.compile(r"This model's maximum context length is (\d+) tokens, and the prompt has (.*? tokens)\..*")
_NO_CALL = re.compile(r"No tool call found for [\w ]+ with call_id (.*?)\. It stands at .*")
_NO_OUTPUT = re.compile(r"No tool output found for function call (.*?)\. Send its output.*")


class Translated(Dialect):
    """Another API's, for one request that was translated."""

    words: ClassVar[dict[re.Pattern[str], str]] = {}
    """How its own servers say what we say, where clients read that: docs/clients.md lists who does."""

    def __init__(self, request: TranslatedChat | Told) -> None:
        self._names = request.names

    def answer(self, content: object) -> JsonResponse:
        """See Dialect. Raises ApiError where the response failed, whatever it said before."""
        response = decode_response(content) if isinstance(content, bytes) else content
        assert isinstance(response, Response)
        if (failure := failure_of(response)) is not None:
            raise failure
        return JsonResponse(self.tell(response))

    def tell(self, response: Response) -> Json:
        """The answer that a response is."""
        raise NotImplementedError

    def word(self, refusal: ApiError) -> None:
        """See Dialect."""
        self._names.rename(refusal)
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

    def __init__(self, request: TranslatedChat) -> None:
        super().__init__(request)
        self._usage, self._reasons = request.usage, request.reasons

    def tell(self, response: Response) -> Json:
        """See Translated."""
        return completion(response, reasons=self._reasons)

    def encoder(self, *, obfuscate: bool) -> Encoder:
        """See Dialect."""
        return ChatEncoder(obfuscate=obfuscate, usage=self._usage, reasons=self._reasons)


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

    def __init__(self, request: Told) -> None:
        super().__init__(request)
        self._thinking: Thinking = request.thinking

    def tell(self, response: Response) -> Json:
        """See Translated."""
        return message(response, self._thinking)

    def encoder(self, *, obfuscate: bool) -> Encoder:
        """See Dialect."""
        return MessagesEncoder(self._thinking)


class ChatEncoder(Encoder):
    """The encoder of Chat Completions: a chunk for the role, one for each delta and each call, and one for the end.

    Events that have no chunk are left out. With `usage` a last chunk has it; with `reasons` reasoning is told, too.
    """

    def __init__(self, *, obfuscate: bool, usage: bool, reasons: bool) -> None:
        super().__init__(obfuscate=obfuscate)
        self._usage, self._reasons = usage, reasons
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
        self, buffer: bytearray, delta: bytes, event: events.Delta | None = None, logprobs: bytes = b"null"
    ) -> None:
        """Write a chunk; that of an event is padded."""
        buffer += self._head
        buffer += b'{"index":0,"delta":%b,"logprobs":%b,"finish_reason":null}]' % (delta, logprobs)
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
        reason = finish_reason(response).encode()
        usage = b',"usage":null' if self._usage else b""
        choice = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"%b"}' % reason
        buffer += b"%b%b]%b}\n\n" % (self._head, choice, usage)
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


class _Kind(msgspec.Struct):
    object: str = ""


_kind = msgspec.json.Decoder(_Kind).decode


def _plain(content: object) -> Json:
    """A response or an event as dictionaries and lists. Log probabilities, which are the same in both dialects and may
    be megabytes, stay JSON.
    """
    return msgspec.to_builtins(content, builtin_types=(msgspec.Raw,))


_REASONING = (b"response.reasoning_text.", b"response.reasoning.")
_OURS = (b"response.", b"harmonium:response.")
_RENAMED: dict[type[Event], tuple[bytes, bytes]] = {
    events.ReasoningTextDelta: _REASONING,
    events.ReasoningTextDone: _REASONING,
    events.SteerFailed: _OURS,
    events.CodeInterpreterCallCompleted: _OURS,
    events.WebSearchCallSearching: _OURS,
    events.WebSearchCallCompleted: _OURS,
    events.FileSearchCallSearching: _OURS,
    events.FileSearchCallCompleted: _OURS,
    events.OutputTextAnnotationAdded: _OURS,
}
"""Events with other names, which stand twice at the beginning, in `event:` and in `type`; text further on may say the
same. Events outside the specification get a prefix."""

_NARROWED = (
    events.Lifecycle,
    events.OutputItemAdded,
    events.OutputItemDone,
    events.FunctionCallArgumentsDone,
    events.Error,
)
"""Events that hold something with more keys, or other ones, than the specification's."""

_WITH_LOGPROBS = (events.OutputTextDelta, events.OutputTextDone)


OPENAI = Dialect()
OPEN_RESPONSES = OpenResponses()
DIALECTS = (OPENAI, OPEN_RESPONSES)
SOCKET_PATHS = frozenset(f"{dialect.prefix}/responses" for dialect in DIALECTS)
"""Where WebSockets are opened."""


def dialect_of(path: str) -> Dialect:
    """The dialect in which a request to `path` is answered."""
    return OPEN_RESPONSES if path.startswith(f"{OPEN_RESPONSES.prefix}/") else OPENAI
