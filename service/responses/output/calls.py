"""Calls of the caller's own tools as items: functions, which take JSON, and custom tools, which take text."""

from collections.abc import Sequence

from msgspec import UNSET

from service.api import events, ids
from service.api.events import Event
from service.api.response import CustomToolCall, FunctionCall, Item, ItemStatus, Logprob
from service.api.tools.callee import Callee
from service.responses.output.emitter import Emitter
from service.responses.output.unwrap import Unwrapper
from store.turn import StoredMessage


class FunctionCallEmitter(Emitter):
    """A call of a function that the caller runs; the arguments go through as sampled."""

    kind = "function_call"

    def __init__(self, response_id: str, index: int, callee: Callee) -> None:
        super().__init__(response_id, index)
        self._callee = callee
        self._call_id = ids.call_id(response_id, index)

    def _item(self, status: ItemStatus) -> FunctionCall:
        namespace = self._callee.namespace or UNSET
        return FunctionCall(self._id, self._call_id, self._callee.name, self._said, status, namespace)

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An arguments delta."""
        self._pieces.append(delta)
        return [events.FunctionCallArgumentsDelta(self._id, self._index, delta)]

    def _ending(self, status: ItemStatus) -> list[Event]:
        return [events.FunctionCallArgumentsDone(self._id, self._index, self._callee.name, self._said)]


class CustomToolCallEmitter(Emitter):
    """A call of a custom tool; where its input was asked for inside a JSON object, it is taken out as it comes."""

    kind = "custom_tool_call"

    def __init__(self, response_id: str, index: int, callee: Callee) -> None:
        super().__init__(response_id, index)
        self._callee = callee
        self._call_id = ids.call_id(response_id, index)
        self._unwrapper = Unwrapper() if callee.wrapped else None

    def _item(self, status: ItemStatus) -> CustomToolCall:
        namespace = self._callee.namespace or UNSET
        return CustomToolCall(self._id, self._call_id, self._callee.name, self._said, status, namespace)

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An input delta, once it is known what the text says."""
        return self._deltas(delta if self._unwrapper is None else self._unwrapper.take(delta))

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """What is left of the input; then the input and the item are done."""
        rest = self._deltas("" if self._unwrapper is None else self._unwrapper.rest())
        item, ending = super().close(status, sampled)
        return item, rest + ending

    def _ending(self, status: ItemStatus) -> list[Event]:
        return [events.CustomToolCallInputDone(self._id, self._index, self._said)]

    def _deltas(self, text: str) -> list[Event]:
        if not text:
            return []
        self._pieces.append(text)
        return [events.CustomToolCallInputDelta(self._id, self._index, text)]
