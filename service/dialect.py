"""Which dialect of the wire a request is answered in: its path says so, and nothing else differs.

Under `/v1` answers are OpenAI's, under `/open-responses/v1` those of the Open Responses specification
(protocol/open_responses.py). Both are made here, at the edge, of the same responses and the same events: what is
stored, queued, logged and counted knows no dialect.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from service.errors import JsonResponse
from service.protocol import events
from service.protocol.events import Event
from service.protocol.open_responses import Json, Translation, open_compaction, open_event, open_response
from service.sse import Encoder


class EventEncoder(Protocol):
    """Writes events at a buffer's end, each in one piece."""

    def append(self, batch: Iterable[Event], buffer: bytearray) -> None: ...


class Dialect:
    """OpenAI's, and what the other one differs in."""

    prefix = "/v1"
    """What its paths begin with."""

    def answer(self, content: object) -> JsonResponse:
        """The JSON answer of a Response or anything else, whether still to be encoded or as bytes."""
        return JsonResponse(content)

    def encoder(self, *, obfuscate: bool) -> EventEncoder:
        """What writes one stream of events."""
        return Encoder(obfuscate=obfuscate)


class OpenResponses(Dialect):
    """The Open Responses specification's."""

    prefix = "/open-responses/v1"

    def answer(self, content: object) -> JsonResponse:
        """See Dialect. What the specification doesn't describe, such as a list of models, is the same in both."""
        body: Json = msgspec.json.decode(content if isinstance(content, bytes) else msgspec.json.encode(content))
        translate = _ANSWERS.get(body["object"])
        return JsonResponse(translate(body) if translate else content)

    def encoder(self, *, obfuscate: bool) -> EventEncoder:
        """See Dialect."""
        return OpenEncoder(obfuscate=obfuscate)


_ANSWERS = {"response": open_response, "response.compaction": open_compaction}
"""By the `object` of what is answered."""


class OpenEncoder:
    """As sse.Encoder, which does most of the work, as most events are the same in both dialects."""

    def __init__(self, *, obfuscate: bool) -> None:
        self._inner = Encoder(obfuscate=obfuscate)
        self._translation = Translation()

    def append(self, batch: Iterable[Event], buffer: bytearray) -> None:
        """Write the events at the buffer's end, each in one piece."""
        for event in batch:
            if isinstance(event, _RENAMED):
                piece = bytearray()
                self._inner.append((event,), piece)
                buffer += _renamed(piece)
                continue
            told = self._translation.event(event)
            if isinstance(told, _NARROWED) or (isinstance(told, _WITH_LOGPROBS) and told.logprobs):
                body = open_event(msgspec.json.decode(msgspec.json.encode(told)))
                buffer += b"event: %b\ndata: %b\n\n" % (body["type"].encode(), msgspec.json.encode(body))
            else:
                self._inner.append((told,), buffer)


_RENAMED = (events.ReasoningTextDelta, events.ReasoningTextDone)
_NARROWED = (
    events.ResponseCreated,
    events.ResponseQueued,
    events.ResponseInProgress,
    events.ResponseCompleted,
    events.ResponseIncomplete,
    events.ResponseFailed,
    events.OutputItemAdded,
    events.OutputItemDone,
    events.FunctionCallArgumentsDone,
    events.Error,
)
"""Events that hold something with more keys, or other ones, than the specification's."""

_WITH_LOGPROBS = (events.OutputTextDelta, events.OutputTextDone)


def _renamed(piece: bytearray) -> bytearray:
    """The name stands twice at the beginning, in `event:` and in `type`; text further on may say the same."""
    return piece.replace(b"response.reasoning_text.", b"response.reasoning.", 2)


OPENAI = Dialect()
OPEN_RESPONSES = OpenResponses()
DIALECTS = (OPENAI, OPEN_RESPONSES)


def dialect_of(path: str) -> Dialect:
    """The dialect in which a request to `path` is answered."""
    return OPEN_RESPONSES if path.startswith(f"{OPEN_RESPONSES.prefix}/") else OPENAI
