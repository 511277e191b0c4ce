"""Calls of the caller's own tools as items: functions, which take JSON, and custom tools, which take text."""

from collections.abc import Sequence

from msgspec import UNSET

from service.api import events, ids
from service.api.events import Event
from service.api.response import CustomToolCall, FunctionCall, Item, ItemStatus, Logprob
from service.api.tools.callee import Callee
from service.responses.output.unwrap import Unwrapper
from store.turn import StoredMessage


class FunctionCallEmitter:
    """A call of a function that the caller runs; the arguments go through as sampled."""

    kind = "function_call"

    def __init__(self, response_id: str, index: int, callee: Callee) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._callee = callee
        self._call_id = ids.call_id(response_id, index)
        self._arguments: list[str] = []

    def _item(self, arguments: str, status: ItemStatus) -> FunctionCall:
        return FunctionCall(
            id=self._id,
            call_id=self._call_id,
            name=self._callee.name,
            arguments=arguments,
            status=status,
            namespace=self._callee.namespace or UNSET,
        )

    def open(self) -> list[Event]:
        """The call without arguments."""
        return [events.OutputItemAdded(output_index=self._index, item=self._item("", "in_progress"))]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An arguments delta."""
        self._arguments.append(delta)
        return [events.FunctionCallArgumentsDelta(item_id=self._id, output_index=self._index, delta=delta)]

    def so_far(self) -> Item:
        """The call in progress."""
        return self._item("".join(self._arguments), "in_progress")

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The arguments and the item are done."""
        arguments = "".join(self._arguments)
        item = self._item(arguments, status)
        return item, [
            events.FunctionCallArgumentsDone(
                item_id=self._id, output_index=self._index, name=self._callee.name, arguments=arguments
            ),
            events.OutputItemDone(output_index=self._index, item=item),
        ]


class CustomToolCallEmitter:
    """A call of a custom tool; where its input was asked for inside a JSON object, it is taken out as it comes."""

    kind = "custom_tool_call"

    def __init__(self, response_id: str, index: int, callee: Callee) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._callee = callee
        self._call_id = ids.call_id(response_id, index)
        self._unwrapper = Unwrapper() if callee.wrapped else None
        self._input: list[str] = []

    def _item(self, status: ItemStatus) -> CustomToolCall:
        return CustomToolCall(
            id=self._id,
            call_id=self._call_id,
            name=self._callee.name,
            input="".join(self._input),
            status=status,
            namespace=self._callee.namespace or UNSET,
        )

    def open(self) -> list[Event]:
        """The call without input."""
        return [events.OutputItemAdded(output_index=self._index, item=self._item("in_progress"))]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An input delta, once it is known what the text says."""
        return self._deltas(delta if self._unwrapper is None else self._unwrapper.take(delta))

    def so_far(self) -> Item:
        """The call in progress."""
        return self._item("in_progress")

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """What is left of the input; then the input and the item are done."""
        rest = self._deltas("" if self._unwrapper is None else self._unwrapper.rest())
        item = self._item(status)
        return item, [
            *rest,
            events.CustomToolCallInputDone(item_id=self._id, output_index=self._index, input=item.input),
            events.OutputItemDone(output_index=self._index, item=item),
        ]

    def _deltas(self, text: str) -> list[Event]:
        if not text:
            return []
        self._input.append(text)
        return [events.CustomToolCallInputDelta(item_id=self._id, output_index=self._index, delta=text)]
