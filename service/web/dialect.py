"""Which dialect of the wire a request is answered in: its path says so, and nothing else differs.

Under `/v1` answers are OpenAI's, under `/open-responses/v1` those of the Open Responses specification
(service/api/open_responses.py), and a request for a chat completion is answered by one (service/api/chat.py). All are
made here, at the edge, of the same responses and the same events: what is stored, queued, logged and counted knows no
dialect.
"""

from collections.abc import Sequence

import msgspec

from service.api import events
from service.api.chat import APART, Chat, call_of, completion, facts_of, failure_of, finish_reason, usage_of
from service.api.events import Event
from service.api.open_responses import Translation, open_compaction, open_event, open_response, with_bytes
from service.api.response import OutputText, Response, decode_response
from service.decoding import Json
from service.errors import ApiError
from service.responses.prompt.compaction import Compacted
from service.web.errors import JsonResponse
from service.web.sse import OBFUSCATION_STEP, Encoder


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
        self._translation = Translation()

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


class ChatCompletions(Dialect):
    """Chat Completions', for one request that was translated."""

    name = "chat_completions"

    def __init__(self, chat: Chat) -> None:
        self._names, self._usage, self._reasons = chat.names, chat.usage, chat.reasons

    def answer(self, content: object) -> JsonResponse:
        """See Dialect. Raises ApiError where the response failed, whatever it said before."""
        response = decode_response(content) if isinstance(content, bytes) else content
        assert isinstance(response, Response)
        if (failure := failure_of(response)) is not None:
            raise failure
        return JsonResponse(completion(response, reasons=self._reasons))

    def encoder(self, *, obfuscate: bool) -> Encoder:
        """See Dialect."""
        return ChatEncoder(obfuscate=obfuscate, usage=self._usage, reasons=self._reasons)

    def word(self, refusal: ApiError) -> None:
        """See Dialect."""
        self._names.rename(refusal)


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
