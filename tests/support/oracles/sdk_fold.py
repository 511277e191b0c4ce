"""The official SDK's own reading of a stream: what programs of its users would be given.

The fold behind `client.responses.stream` decides by types, places and ids; it only joins texts, and an item never meets
another one. So a stream of a response's id that is known, all of whose items went the way of items that were read
before, is not read again: ten thousand random ones then cost a second and not minutes. Every service makes ids of its
own, so whatever comes from one is read. Never import from `service` here: it is there to disagree with it.
"""

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

Json = dict[str, Any]

MAX_FORMS = 100_000
"""How many forms of items and responses are remembered."""

PARSED = ("parsed", "parsed_arguments")
"""What the SDK adds, for those who asked it to parse."""

_seen: set[Hashable] = set()


def check_fold(events: Sequence[Json]) -> None:
    """Have the SDK accumulate a whole stream, unless it has read all that it is made of.

    Raises AssertionError where what it comes to isn't the terminal response, and whatever the SDK raises.
    """
    forms = _forms(events)
    if forms <= _seen:
        return
    state = ResponseStreamState[None](input_tools=omit, text_format=omit)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Pydantic serializer warnings")  # of tools that it doesn't know
        for sent in events:
            event: Any = construct_type(type_=ResponseStreamEvent, value=sent)
            state.handle_event(event)
    last = events[-1]
    for index, item in enumerate(last["response"]["output"]):
        _check_joined(state._output_items[index].to_dict(warnings=False), item)
    final = state._completed_response
    assert (final is not None) == (last["type"] == "response.completed"), "the SDK disagrees on whether it is complete"
    assert final is None or _unparsed(final.to_dict(warnings=False)) == last["response"]
    if len(_seen) < MAX_FORMS:
        _seen.update(forms)


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


def _forms(events: Sequence[Json]) -> set[Hashable]:
    """What the SDK decides by: what is told of the response, and of each item; of deltas in a row, one."""
    frame: list[Hashable] = []
    items: dict[int, list[Hashable]] = {}
    open_id, done = None, list[Hashable]()
    for event in events:
        index, item = event.get("output_index"), event.get("item")
        if index is None:
            response = event.get("response") or {}
            output = [(each["type"], each["id"]) for each in response.get("output") or []]
            frame.append((event["type"], response.get("id"), output == done))
            continue
        if event["type"] == "response.output_item.added":
            open_id = event["item"]["id"]
        if event["type"] == "response.output_item.done":
            done.append((event["item"]["type"], event["item"]["id"]))
        step = (event["type"], item and item["type"], open_id == (item["id"] if item else event["item_id"]))
        form = items.setdefault(index, [])
        if not form or form[-1] != step:
            form.append(step)
    return {(*frame, len(set(done)) == len(items)), *map(tuple, items.values())}
