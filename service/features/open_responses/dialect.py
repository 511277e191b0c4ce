"""The dialect of the Open Responses specification: what is under `/open-responses/v1` is answered in it.

The forms are those of service/features/open_responses/shapes.py. Never answer in it by anything but the path.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from service.api import events
from service.api.events import Event
from service.api.response import OutputText, Response, SummaryText, decode_response
from service.decoding import Json
from service.features.open_responses.shapes import TRANSLATIONS, open_compaction, open_event, open_response
from service.responses.prompt.compaction import Compacted
from service.web.dialect import Dialect
from service.web.errors import JsonResponse
from service.web.sse import KEEP_ALIVE, Encoder


class OpenResponses(Dialect):
    """The Open Responses specification's."""

    name = "open_responses"
    prefix = "/open-responses/v1"
    stable = False

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
        self._wanted = ""
        """The arguments of the last call of a tool that isn't here, for the end of its summary's part."""

    def keep_alive(self) -> bytes:
        """See Encoder. The specification has no such event."""
        return KEEP_ALIVE

    def append(self, batch: Sequence[Event], buffer: bytearray) -> None:
        """Write the events at the buffer's end, each in one piece."""
        for place, event in enumerate(batch):
            if renamed := _RENAMED.get(type(event)):
                piece = bytearray()
                super().append((event,), piece)
                buffer += piece.replace(*renamed, 2)
                continue
            following = batch[place + 1] if place + 1 < len(batch) else None
            translated = self._translate(event)
            if (
                isinstance(translated, events.OutputTextDone)
                and isinstance(following, events.ContentPartDone)
                and isinstance(following.part, OutputText)
            ):
                # its own log probabilities have no bytes; those of the part that follows have
                known = tuple(following.part.logprobs)
                super().append((msgspec.structs.replace(translated, logprobs=known),), buffer)
            elif isinstance(translated, _NARROWED) or (isinstance(translated, _WITH_LOGPROBS) and translated.logprobs):
                body = open_event(_plain(translated))
                buffer += b"event: %b\ndata: %b\n\n" % (body["type"].encode(), msgspec.json.encode(body))
            else:
                super().append((translated,), buffer)

    def _translate(self, event: Event) -> Event:
        """The event in the specification's words, as far as that is an event of ours too."""
        if isinstance(event, events.McpCallArgumentsDone | events.CodeInterpreterCallCodeDone):
            self._wanted = event.arguments if isinstance(event, events.McpCallArgumentsDone) else event.code
        translate = TRANSLATIONS.get(type(event))
        translated = event if translate is None else translate(event)
        if isinstance(event, events.McpCallCompleted | events.McpCallFailed | events.CodeInterpreterCallInterpreting):
            cast(events.SummaryPartDone, translated).part = SummaryText(self._wanted)
        return translated


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


OPEN_RESPONSES = OpenResponses()
