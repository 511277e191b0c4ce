"""The official SDK's own reading of a stream: what programs of its users would be given.

The fold behind `client.responses.stream` decides by types, places and ids, and only joins texts. So of streams that
differ in texts alone one is enough; ten thousand random ones then cost seconds and not minutes. Never import from
`service` here: it is there to disagree with it.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

Json = dict[str, Any]

MAX_SHAPES = 100_000
"""How many forms of streams are remembered."""

PARSED = ("parsed", "parsed_arguments")
"""What the SDK adds, for those who asked it to parse."""

_seen: set[Hashable] = set()


def check_fold(events: Sequence[Json]) -> None:
    """Have the SDK accumulate a whole stream, unless it has read one of the same form.

    Raises AssertionError where what it comes to isn't the terminal response, and whatever the SDK raises.
    """
    shape = _shape(events)
    if shape in _seen:
        return
    state = ResponseStreamState[None](input_tools=omit, text_format=omit)
    for sent in events:
        event: Any = construct_type(type_=ResponseStreamEvent, value=sent)
        state.handle_event(event)
    last = events[-1]
    for index, item in enumerate(last["response"]["output"]):
        _check_joined(state._output_items[index].to_dict(warnings=False), item)
    final = state._completed_response
    assert (final is not None) == (last["type"] == "response.completed"), "the SDK disagrees on whether it is complete"
    assert final is None or _unparsed(final.to_dict(warnings=False)) == last["response"]
    if len(_seen) < MAX_SHAPES:
        _seen.add(shape)


def _check_joined(joined: Json, item: Json) -> None:
    """What the SDK joined of deltas is the item's text."""
    if item["type"] == "message":
        assert [part["text"] for part in joined["content"]] == [part["text"] for part in item["content"]]
    elif item["type"] == "function_call":
        assert joined["arguments"] == item["arguments"]


def _unparsed(value: Any) -> Any:
    """A response as it was sent."""
    if isinstance(value, dict):
        return {key: _unparsed(each) for key, each in value.items() if key not in PARSED or each is not None}
    return [_unparsed(each) for each in value] if isinstance(value, list) else value


def _shape(events: Sequence[Json]) -> tuple[Hashable, ...]:
    """A stream without its texts; of deltas in a row, one."""
    shape: list[Hashable] = []
    for event in events:
        item, response = event.get("item") or {}, event.get("response") or {}
        place = (event["type"], event.get("output_index"), item.get("type"), item.get("id"), response.get("id"))
        if not shape or shape[-1] != place:
            shape.append(place)
    return tuple(shape)
