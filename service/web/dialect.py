"""Which dialect of the wire a request is answered in: its path says so, and nothing else differs.

Under `/v1` answers are OpenAI's, under `/open-responses/v1` those of the Open Responses specification
(service/api/open_responses.py). Both are made here, at the edge, of the same responses and the same events: what is
stored, queued, logged and counted knows no dialect.
"""

import secrets
from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

import msgspec

from service.api import events
from service.api.events import Event
from service.api.open_responses import Translation, open_compaction, open_event, open_response
from service.api.response import Item, Message, OutputText, Response, decode_response
from service.decoding import Json
from service.web.errors import JsonResponse
from service.web.sse import Encoder


class EventEncoder(Protocol):
    """Writes events at a buffer's end, each in one piece."""

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None: ...


class Dialect:
    """OpenAI's, and what the other one differs in."""

    name = "openai"
    prefix = "/v1"
    """The prefix of its paths."""

    def answer(self, content: object) -> JsonResponse:
        """The JSON answer of a Response or anything else, whether still to be encoded or as bytes."""
        return JsonResponse(content)

    def encoder(self, *, obfuscate: bool) -> EventEncoder:
        """The encoder of one stream of events."""
        return Encoder(obfuscate=obfuscate)


class OpenResponses(Dialect):
    """The Open Responses specification's."""

    name = "open_responses"
    prefix = "/open-responses/v1"

    def answer(self, content: object) -> JsonResponse:
        """See Dialect. Objects outside the specification, such as a list of models, are the same in both."""
        aside = _Aside()
        if isinstance(content, bytes) and _SHOWN in content and _kind(content).object == "response":
            content = decode_response(content)
        if isinstance(content, Response):
            content = aside.response(content)
        body: Json = msgspec.json.decode(content if isinstance(content, bytes) else msgspec.json.encode(content))
        translate = _ANSWERS.get(body["object"])
        return JsonResponse(aside.back(msgspec.json.encode(translate(body))) if translate else content)

    def encoder(self, *, obfuscate: bool) -> EventEncoder:
        """See Dialect."""
        return OpenEncoder(obfuscate=obfuscate)


_ANSWERS = {"response": open_response, "response.compaction": open_compaction}
"""The translations of answers, by their `object`."""


class OpenEncoder:
    """The encoder of Open Responses: mostly sse.Encoder's work, as most events are the same in both dialects."""

    def __init__(self, *, obfuscate: bool) -> None:
        self._inner = Encoder(obfuscate=obfuscate)
        self._translation = Translation()

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None:
        """Write the events at the buffer's end, each in one piece."""
        for place, event in enumerate(batch):
            if type(event) in _RENAMED:
                piece = bytearray()
                self._inner.append((event,), piece)
                buffer += piece.replace(*_RENAMED[type(event)], 2)
                continue
            translated = self._translation.event(event)
            if isinstance(translated, _NARROWED) or (isinstance(translated, _WITH_LOGPROBS) and translated.logprobs):
                aside = _Aside()
                translated = aside.event(translated, batch[place + 1] if place + 1 < len(batch) else None)
                body: Json = msgspec.json.decode(msgspec.json.encode(translated))
                body = body if aside.all else open_event(body)
                written = aside.back(msgspec.json.encode(body))
                buffer += b"event: %b\ndata: %b\n\n" % (body["type"].encode(), written)
            else:
                self._inner.append((translated,), buffer)


_SHOWN = b'"logprobs":[{'
_MARK = f"logprobs {secrets.token_hex(16)}"
"""A marker that no request can contain."""

_T = TypeVar("_T", bound=events.Event | Response)


class _Kind(msgspec.Struct):
    object: str = ""


_kind = msgspec.json.Decoder(_Kind).decode


class _Aside:
    """The log probabilities of messages, which are the same in both dialects: they are taken out while the rest is
    translated, as they may be megabytes, and put back unchanged.
    """

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self.all = False
        """Whether that was all there is to translate."""

    def response(self, response: Response) -> Response:
        """The response without them."""
        return msgspec.structs.replace(response, output=[self._item(item) for item in response.output])

    def event(self, event: _T, following: Event | None) -> _T:
        """The event without them. A text's done event has them without bytes; those in the part that follows have."""
        if isinstance(event, events.OutputTextDone) and isinstance(following, events.ContentPartDone):
            if event.logprobs and isinstance(following.part, OutputText):
                self.all = True
                return cast(_T, msgspec.structs.replace(event, logprobs=tuple(self._laid(following.part.logprobs))))
        elif isinstance(event, events.OutputItemDone):
            return cast(_T, msgspec.structs.replace(event, item=self._item(event.item)))
        elif isinstance(event, events.Terminal):
            return cast(_T, msgspec.structs.replace(event, response=self.response(event.response)))
        return event

    def _item(self, item: Item) -> Item:
        if not isinstance(item, Message):
            return item
        parts = [
            msgspec.structs.replace(part, logprobs=self._laid(part.logprobs)) if part.logprobs else part
            for part in item.content
        ]
        return msgspec.structs.replace(item, content=parts)

    def _laid(self, logprobs: Sequence[msgspec.Raw]) -> list[msgspec.Raw]:
        """The placeholder of log probabilities that are kept aside."""
        self._kept.append(b",".join(map(bytes, logprobs)))
        return [msgspec.Raw(self._mark(len(self._kept) - 1))]

    @staticmethod
    def _mark(place: int) -> bytes:
        return f'"{_MARK} {place}"'.encode()

    def back(self, body: bytes) -> bytes:
        """The JSON with them in their places."""
        for place, kept in enumerate(self._kept):
            body = body.replace(self._mark(place), kept, 1)
        return body


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
