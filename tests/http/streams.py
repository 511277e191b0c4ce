"""Streams as they come over the wire: server-sent events to dictionaries, and what holds for every stream."""

import json
from typing import Any

Event = dict[str, Any]


def parsed(body: str) -> list[Event]:
    """The events of a whole stream, which must end with [DONE]. Comments are skipped, as the format says."""
    blocks = [block for block in body.split("\n\n") if block and not block.startswith(":")]
    assert blocks[-1] == "data: [DONE]", blocks[-1]
    events: list[Event] = []
    for block in blocks[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return checked(events)


def checked(events: list[Event]) -> list[Event]:
    """The same events, which keep the grammar of a stream."""
    terminal = ("response.completed", "response.incomplete", "response.failed")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] in terminal for event in events] == [False] * (len(events) - 1) + [True]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    deltas: dict[str, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
    for item in done:
        whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert deltas.get(item["id"], "") == whole
    return events
