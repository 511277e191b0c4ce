"""The grammar of a response's stream of events, as a parser that accepts only what the Responses API allows.

    stream    created [queued] in_progress item* [steer_failed*] [error] terminal
              created queued [steer_failed*] [error] terminal   what was over before a worker began
    item      added payload done
    payload   message, reasoning:                 part
              reasoning with a summary:           summary_part_added delta* text_done summary_part_done part
              function_call, custom_tool_call:    delta* text_done
              code_interpreter_call:              in_progress delta* text_done [interpreting [completed]]
              mcp_call:                           in_progress delta* text_done [completed | failed]
              mcp_list_tools:                     in_progress completed
              web_search_call, file_search_call:  in_progress [searching [completed]]
              shell_call:                         command*
              tool_search_call, local_shell_call, apply_patch_call,
              mcp_approval_request, compaction:   nothing
    command   command_added [delta] command_done
    part      part_added (delta | annotation_added)* text_done part_done
    terminal  completed | incomplete | failed, the last event of all

Every test that sees a whole stream passes it through `check_stream`, which has the official SDK read it too. It reads
decoded JSON, whatever carried it, and must never import from `service`: it is there to disagree with it.
"""

from collections.abc import Sequence
from typing import Any

from tests.support.oracles.sdk_fold import check_fold

Json = dict[str, Any]

TERMINAL_STATUS = {
    "response.completed": {"completed"},
    "response.incomplete": {"incomplete"},
    "response.failed": {"failed", "cancelled"},
}
CHANGES = {
    *("status", "output", "usage", "error", "incomplete_details", "completed_at", "output_messages", "durability"),
    "harmonium",
}
"""What of a response differs between its creation and its end; the rest echoes the request."""

PART_OF = {"message": "output_text", "reasoning": "reasoning_text"}
EMPTY: dict[str, Json] = {
    "message": {"content": []},
    "reasoning": {"content": [], "summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
    "code_interpreter_call": {"code": "", "outputs": None},
    "mcp_call": {"arguments": "", "output": None, "error": None},
    "mcp_list_tools": {"tools": []},
    "mcp_approval_request": {},
    "web_search_call": {},
    "file_search_call": {"queries": [], "results": None},
    "compaction": {"encrypted_content": ""},
    "tool_search_call": {"arguments": {}, "execution": "client"},
    "shell_call": {"action": {"commands": [], "timeout_ms": None, "max_output_length": None}},
    "local_shell_call": {"action": {"type": "exec", "command": [], "env": {}}},
    "apply_patch_call": {},
}
"""What an item has when it is added, besides what it keeps."""

TEXT_OF = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
    "code_interpreter_call": ("code_interpreter_call_code", "code"),
    "mcp_call": ("mcp_call_arguments", "arguments"),
}
"""The family of events of a call's text, and the member that has it."""

ACTIONS = {
    "tool_search_call": "arguments",
    "shell_call": "action",
    "local_shell_call": "action",
    "apply_patch_call": "operation",
}
"""Calls that are known at their end alone, and the member that says what is to be done."""

NO_PATCH = {"type": "update_file", "path": "", "diff": ""}
"""What stands for a patch that was cut short."""

FOREIGN = {"code_interpreter_call", "mcp_call", "web_search_call", "file_search_call"}
"""Calls that aren't the caller's to run: they fail, but for those of tools that the service runs."""

AT_WORK = {"code_interpreter_call": "interpreting", "web_search_call": "searching", "file_search_call": "searching"}
"""What says that a call runs, of tools that have an event for it."""

WITHOUT_STATUS = {"compaction", "mcp_list_tools", "mcp_approval_request"}

SEARCHES = {"search": {"query"}, "open_page": {"url"}, "find_in_page": {"url", "pattern"}}


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
    """Check a whole stream and return its terminal event's response. Raises AssertionError where it is malformed. A
    stream that is silent for long has a `keepalive` anywhere, which is no part of a response.
    """
    reader = Reader([each for each in events if each["type"] != "keepalive"])
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
    given_back: list[Json] = []
    while reader.type == "response.steer.failed":
        told = reader.take("response.steer.failed")
        error = {"code": told["code"], "message": told["message"], "type": "invalid_request_error"}
        given_back.append({"steer": told["steer"], "error": error})
    error = reader.take("error") if reader.type == "error" else None
    terminal = reader.take(*TERMINAL_STATUS)
    assert reader.type is None, f"{reader.type} after the terminal event"
    _check_end(created, terminal, items, error)
    assert terminal["response"].get("harmonium", {}).get("failed_steers", []) == given_back
    check_fold(events)
    return terminal["response"]


def _check_end(created: Json, terminal: Json, items: list[Json], error: Json | None) -> None:
    """The terminal response is the created one, its items and how it ended."""
    response = terminal["response"]
    status = response["status"]
    assert status in TERMINAL_STATUS[terminal["type"]]
    assert response["output"] == items
    assert all(item.get("status") != "incomplete" for item in items[:-1]), "an incomplete item can only be the last one"
    assert {key: response[key] for key in response if key not in CHANGES} == {
        key: created[key] for key in created if key not in CHANGES
    }
    assert status != "completed" or all(item.get("encrypted_content") != "" for item in items), "half a summary"
    assert (response["completed_at"] is not None) == (status == "completed")
    assert (response["incomplete_details"] is not None) == (status == "incomplete")
    assert (response["error"] is not None) == (status == "failed") == (error is not None)
    if error is not None:
        assert (error["code"], error["message"]) == (response["error"]["code"], response["error"]["message"])
    _check_usage(response["usage"], shown="output_messages" in response)


def _check_usage(usage: Json, *, shown: bool) -> None:
    """What belongs to one turn adds up to what belongs to all."""
    put_in, put_out = usage["input_tokens_details"], usage["output_tokens_details"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert put_out["reasoning_tokens"] <= usage["output_tokens"]
    lists = {key: value for key, value in {**put_in, **put_out}.items() if key.endswith("_per_turn")}
    assert shown == bool(lists), "figures of each turn for who didn't ask for them, or none for who did"
    if not lists:
        return
    assert sum(lists["input_tokens_per_turn"]) == usage["input_tokens"]
    assert sum(lists["cached_tokens_per_turn"]) == put_in["cached_tokens"]
    assert sum(lists["output_tokens_per_turn"]) == usage["output_tokens"]
    assert sum(lists["tool_output_tokens_per_turn"]) == put_out["tool_output_tokens"]
    assert len({*map(len, lists.values())}) == 1, "figures of different numbers of turns"


def _item(reader: Reader, index: int) -> Json:
    """One item from `added` to `done`; returns it as it was done."""
    event = reader.take("response.output_item.added")
    added = event["item"]
    kind = added["type"]
    assert event["output_index"] == index
    assert added.get("status") == (None if kind in WITHOUT_STATUS else "in_progress")
    assert {**added, **EMPTY[kind]} == added, f"an item added with something in it: {added}"
    payload = _payload(reader, added, index)
    event = reader.take("response.output_item.done")
    done = event["item"]
    assert event["output_index"] == index
    if kind not in WITHOUT_STATUS:
        ends = ("failed",) if kind in FOREIGN else ("completed",)
        assert done["status"] in (*ends, "incomplete") or "status" in payload
        payload.setdefault("status", done["status"])
    payload.update(_known_at_the_end(added, done))
    assert done == {**added, **payload}
    return done


def _payload(reader: Reader, item: Json, index: int) -> Json:
    """What comes between an item's beginning and its end; returns the members that it fills."""
    kind = item["type"]
    place = {"item_id": item["id"], "output_index": index}
    if kind == "mcp_list_tools":
        _at(place, reader.take("response.mcp_list_tools.in_progress"))
        _at(place, reader.take("response.mcp_list_tools.completed"))
    if kind in FOREIGN:
        _at(place, reader.take(f"response.{kind}.in_progress"))
    if kind in PART_OF:
        return _parts(reader, item, place)
    if kind == "shell_call":
        _commands(reader, place)
    if kind not in TEXT_OF:
        return _at_work(reader, kind, place)
    family, member = TEXT_OF[kind]
    text, done = _text(reader, f"response.{family}", place)
    assert done[member] == text
    assert kind != "function_call" or done["name"] == item["name"]
    if kind != "mcp_call":
        return {member: text, **_at_work(reader, kind, place)}
    for end in ("completed", "failed"):
        if reader.type == f"response.mcp_call.{end}":
            _at(place, reader.take(f"response.mcp_call.{end}"))
            return {member: text, "status": end}
    return {member: text, "status": "incomplete"}


def _at_work(reader: Reader, kind: str, place: Json) -> Json:
    """Of a call of a tool that has an event for it, that it runs, and that it has."""
    running = f"response.{kind}.{AT_WORK.get(kind)}"
    if kind not in AT_WORK or reader.type != running:
        return {}
    _at(place, reader.take(running))
    if reader.type != f"response.{kind}.completed":
        return {}
    _at(place, reader.take(f"response.{kind}.completed"))
    return {"status": "completed"}


def _known_at_the_end(added: Json, done: Json) -> Json:
    """The members that only a done item has, and no event before it."""
    kind = added["type"]
    if kind == "web_search_call":
        assert "action" not in added
        assert done["action"].keys() - {"type", "sources"} == SEARCHES[done["action"]["type"]]
        return {"action": done["action"]}
    if kind == "file_search_call":
        assert done["results"] is None or done["status"] == "completed"
        return {"queries": done["queries"], "results": done["results"]}
    if kind in ACTIONS:
        said = done[ACTIONS[kind]]
        assert kind != "apply_patch_call" or added[ACTIONS[kind]] == said
        assert done["status"] == "completed" or said == EMPTY[kind].get(ACTIONS[kind], NO_PATCH), "half a call"
        return {ACTIONS[kind]: said}
    if kind == "mcp_call":
        assert (done["error"] is None) or done["status"] != "completed"
        assert (done["error"] is not None) or done["status"] != "failed"
        assert done["output"] is None or done["status"] == "completed"
        return {"error": done["error"], "output": done["output"]}
    if kind == "code_interpreter_call":
        assert done["outputs"] is None or done["status"] != "incomplete"
        return {"outputs": done["outputs"], "container_id": done["container_id"]}
    if kind == "mcp_list_tools":
        assert all({"name", "input_schema"} <= tool.keys() for tool in done["tools"])
        return {"tools": done["tools"]}
    if kind == "compaction" or (kind == "reasoning" and "encrypted_content" in done):
        assert "encrypted_content" not in added or added["encrypted_content"] == ""
        assert done["encrypted_content"] or (kind == "compaction" and done["encrypted_content"] == "")
        return {"encrypted_content": done["encrypted_content"]}
    return {}


def _commands(reader: Reader, place: Json) -> None:
    """The commands of a shell's call, one by one."""
    index = 0
    while reader.type == "response.shell_call_command.added":
        at = {**place, "command_index": index}
        assert _at(at, reader.take("response.shell_call_command.added"))["command"] == ""
        text, done = _text(reader, "response.shell_call_command", at)
        assert done["command"] == text
        index += 1


def _parts(reader: Reader, item: Json, place: Json) -> Json:
    """The one part of a message or of reasoning, and before it the one of a summary."""
    if reader.type != "response.reasoning_summary_part.added":
        return {"content": [_part(reader, item, place)]}
    assert item["type"] == "reasoning"
    at = {**place, "summary_index": 0}
    added = _at(at, reader.take("response.reasoning_summary_part.added"))["part"]
    assert added == {"type": "summary_text", "text": ""}
    text, done = _text(reader, "response.reasoning_summary_text", at)
    assert done["text"] == text
    part = _at(at, reader.take("response.reasoning_summary_part.done"))["part"]
    assert part == {**added, "text": text}
    return {"summary": [part], "content": [_part(reader, item, place, untold=text)]}


def _part(reader: Reader, item: Json, place: Json, untold: str | None = None) -> Json:
    """A content part; returns it whole. One whose text was told in a summary says it in no delta: `untold`."""
    kind = PART_OF[item["type"]]
    at = {**place, "content_index": 0}
    added = _at(at, reader.take("response.content_part.added"))["part"]
    assert added == {"type": kind, "text": "", **({"annotations": [], "logprobs": []} if kind == "output_text" else {})}
    logprobs: list[Json] = []
    annotations: list[Json] = []
    text, done = _text(reader, f"response.{kind}", at, logprobs, annotations, empty=bool(untold))
    if untold is not None:
        assert text == "", "what a summary has said is said again"
        text = untold
    assert done["text"] == text
    part = _at(at, reader.take("response.content_part.done"))["part"]
    if kind == "output_text":
        assert logprobs == done["logprobs"] == [_without_bytes(each) for each in part["logprobs"]]
        assert part["annotations"] == annotations
        assert all(0 <= each["start_index"] < each["end_index"] <= len(text) for each in annotations)
        added = {**added, "logprobs": part["logprobs"], "annotations": annotations}
    assert part == {**added, "text": text}
    return part


def _without_bytes(logprob: Json) -> Json:
    """A token of a done part as events have it."""
    for each in (logprob, *logprob["top_logprobs"]):
        assert -9999.0 <= each["logprob"] <= 0
        assert bytes(each["bytes"]).decode("utf-8", "replace") == each["token"] or not each["bytes"]
    top = [{"token": each["token"], "logprob": each["logprob"]} for each in logprob["top_logprobs"]]
    return {"token": logprob["token"], "logprob": logprob["logprob"], "top_logprobs": top}


def _text(
    reader: Reader,
    family: str,
    place: Json,
    logprobs: list[Json] | None = None,
    annotations: list[Json] | None = None,
    *,
    empty: bool = False,
) -> tuple[str, Json]:
    """A family's deltas, joined, and its done event; their log probabilities go to `logprobs`, and what stands between
    them to `annotations`. One may be `empty`.
    """
    deltas: list[str] = []
    while reader.type in (f"{family}.delta", "response.output_text.annotation.added"):
        if annotations is not None and reader.type != f"{family}.delta":
            event = _at(place, reader.take("response.output_text.annotation.added"))
            assert event["annotation_index"] == len(annotations)
            assert event["annotation"]["end_index"] <= sum(map(len, deltas)), "a citation before its text"
            annotations.append(event["annotation"])
            continue
        event = _at(place, reader.take(f"{family}.delta"))
        deltas.append(event["delta"])
        if logprobs is not None:
            logprobs += event.get("logprobs", [])
    assert "" not in deltas or (empty and len(deltas) == 1), "a delta without text says nothing"
    return "".join(deltas), _at(place, reader.take(f"{family}.done"))


def _at(place: Json, event: Json) -> Json:
    """The event, which must belong to the open item and part."""
    assert {key: event[key] for key in place} == place
    return event
