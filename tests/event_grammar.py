"""The grammar of a response's stream of events, as a parser that accepts only what the Responses API allows.

    stream    created [queued] in_progress item* [error] terminal
              created queued [error] terminal             what was over before a worker began
    item      added payload done
    payload   message, reasoning:  part_added delta* text_done part_done
              function_call:       delta* arguments_done
    terminal  completed | incomplete | failed, the last event of all

Every test that sees a whole stream passes it through `check_stream`. It reads decoded JSON, whatever carried it, and
must never import from `service`: it is there to disagree with it.
"""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

TERMINAL_STATUS = {
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete"},
    "response.failed": {"failed", "cancelled"},
}
PART_OF = {"message": "output_text", "reasoning": "reasoning_text"}
CHANGES = {"status", "output", "usage", "error", "incomplete_details", "completed_at"}
"""What of a response differs between its creation and its end; the rest echoes the request."""


class Reader:
    """The events in order, each looked at once; their numbers are checked on the way."""

    def __init__(self, events: Sequence[Json]) -> None:
        self._events = events
        self._place = 0

    @property
    def type(self) -> str | None:
        """The next event's type, or None at the end."""
        return self._events[self._place]["type"] if self._place < len(self._events) else None

    def seen(self, type: str) -> bool:
        """Whether an event of a type was among those taken."""
        return any(event["type"] == type for event in self._events[: self._place])

    def take(self, *types: str) -> Json:
        """The next event, which must be of one of `types`."""
        assert self.type in types, f"event {self._place} is {self.type}, not one of {types}"
        event = self._events[self._place]
        assert event["sequence_number"] == self._place, f"event {self._place} has number {event['sequence_number']}"
        self._place += 1
        return event


def check_stream(events: Sequence[Json]) -> Json:
    """Check a whole stream and return its terminal event's response. Raises AssertionError where it is malformed."""
    reader = Reader(events)
    created = reader.take("response.created")["response"]
    assert created["output"] == []
    assert created["usage"] is None
    assert created["status"] == ("queued" if reader.type == "response.queued" else "in_progress")
    if reader.type == "response.queued":
        assert reader.take("response.queued")["response"] == created
    if created["status"] == "in_progress" or reader.type == "response.in_progress":
        assert reader.take("response.in_progress")["response"] == {**created, "status": "in_progress"}
    items: list[Json] = []
    while reader.type == "response.output_item.added":
        assert reader.seen("response.in_progress"), "an item before the response began"
        items.append(_item(reader, len(items)))
    error = reader.take("error") if reader.type == "error" else None
    terminal = reader.take(*TERMINAL_STATUS)
    assert reader.type is None, f"{reader.type} after the terminal event"
    _check_end(created, terminal, items, error)
    return terminal["response"]


def _check_end(created: Json, terminal: Json, items: list[Json], error: Json | None) -> None:
    """The terminal response is the created one, its items and how it ended."""
    response = terminal["response"]
    status = response["status"]
    assert status in TERMINAL_STATUS[terminal["type"]]
    assert response["output"] == items
    assert all(item["status"] == "completed" for item in items[:-1]), "an incomplete item can only be the last one"
    assert {key: response[key] for key in response if key not in CHANGES} == {
        key: created[key] for key in created if key not in CHANGES
    }
    assert (response["completed_at"] is not None) == (status == "completed")
    assert (response["incomplete_details"] is not None) == (status == "incomplete")
    assert (response["error"] is not None) == (status == "failed") == (error is not None)
    if error is not None:
        assert (error["code"], error["message"]) == (response["error"]["code"], response["error"]["message"])
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]


def _item(reader: Reader, index: int) -> Json:
    """One item from `added` to `done`; returns it as it was done."""
    event = reader.take("response.output_item.added")
    added = event["item"]
    assert event["output_index"] == index
    assert added["status"] == "in_progress"
    if added["type"] == "function_call":
        payload: Json = {"arguments": _arguments(reader, added, index)}
        assert added["arguments"] == ""
    else:
        payload = {"content": [_part(reader, added, index)]}
        assert added["content"] == []
    event = reader.take("response.output_item.done")
    done = event["item"]
    assert event["output_index"] == index
    assert done["status"] in ("completed", "incomplete")
    assert done == {**added, **payload, "status": done["status"]}
    return done


def _part(reader: Reader, item: Json, index: int) -> Json:
    """The one part of a message or of reasoning; returns it whole."""
    kind = PART_OF[item["type"]]
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    added = _at(place, reader.take("response.content_part.added"))["part"]
    assert added["type"] == kind
    assert added["text"] == ""
    text = _deltas(reader, f"response.{kind}.delta", place)
    assert _at(place, reader.take(f"response.{kind}.done"))["text"] == text
    done = _at(place, reader.take("response.content_part.done"))["part"]
    assert done == {**added, "text": text}
    return done


def _arguments(reader: Reader, item: Json, index: int) -> str:
    place = {"item_id": item["id"], "output_index": index}
    arguments = _deltas(reader, "response.function_call_arguments.delta", place)
    done = _at(place, reader.take("response.function_call_arguments.done"))
    assert done["name"] == item["name"]
    assert done["arguments"] == arguments
    return arguments


def _deltas(reader: Reader, type: str, place: Json) -> str:
    deltas: list[str] = []
    while reader.type == type:
        deltas.append(_at(place, reader.take(type))["delta"])
    assert "" not in deltas, "a delta without text says nothing"
    return "".join(deltas)


def _at(place: Json, event: Json) -> Json:
    """The event, which must belong to the open item and part."""
    assert {key: event[key] for key in place} == place
    return event
