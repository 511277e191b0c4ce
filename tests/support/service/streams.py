"""Streams as they come over the wire: server-sent events to dictionaries, past the grammar of all streams."""

import json
from typing import Any

from tests.support.oracles.event_grammar import check_stream

Event = dict[str, Any]


def parsed(body: str) -> list[Event]:
    """The events of a whole stream, past the grammar."""
    events = sent(body)
    check_stream(events)
    return events


def sent(body: str) -> list[Event]:
    """The events of a stream, which may begin anywhere and must end with [DONE]. What keeps it alive is skipped."""
    blocks = [block for block in body.split("\n\n") if block and not block.startswith((":", "event: keepalive"))]
    assert blocks[-1] == "data: [DONE]", blocks[-1]
    events: list[Event] = []
    for block in blocks[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events
