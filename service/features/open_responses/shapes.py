"""The second dialect of the wire: the Open Responses specification (version 2026-04-24), made from what `/v1` says.

Nothing but words differs. Reasoning streams as `response.reasoning.*`, and errors are nested. Events, items and keys
that the specification lacks are translated into ones that it has, or left out:

    custom tool, its call        a function without a schema, whose arguments are the input as it is
    other tools of the client's  functions without a schema, whose arguments are the actions of their items
    call of a tool that isn't    reasoning with a summary: the arguments of the call
    tools that a server lists    reasoning with an empty summary
    namespace, hosted tool       the namespace's tools one by one; nothing
    any other key                left out

Each event becomes exactly one, with the number it had. So a follower may change the dialect in between, and takes no
gap for a loss. Never decide anything else by the dialect.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from service.api import events
from service.api.events import Event
from service.api.response import SummaryText, with_bytes
from service.api.tools.client import CLIENT, is_run_by_the_client
from service.decoding import Json

E = TypeVar("E", bound=Event)

RESPONSE_KEYS = (
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
)  # fmt: skip
ITEM_KEYS: dict[str, tuple[str, ...]] = {
    "message": ("type", "id", "status", "role", "content", "phase"),
    "function_call": ("type", "id", "call_id", "name", "arguments", "status"),
    "function_call_output": ("type", "id", "call_id", "output", "status"),
    "reasoning": ("type", "id", "content", "summary", "encrypted_content"),
    "compaction": ("type", "id", "encrypted_content"),
}
ACTIONS = {
    "tool_search_call": "arguments",
    "shell_call": "action",
    "local_shell_call": "action",
    "apply_patch_call": "operation",
}
"""Calls of the client's other tools, each with the member that holds its action."""

TOOL_KEYS = ("type", "name", "description", "parameters", "strict")
EFFORTS = {"minimal": "low", "max": "xhigh"}
"""Efforts that the specification doesn't know, and their neighbours."""


# --- JSON ---------------------------------------------------------------------------------------------------


def open_response(response: Json) -> Json:
    """A Response as Open Responses has it."""
    return _only(RESPONSE_KEYS, response) | {
        "output": [open_item(item) for item in response["output"]],
        "usage": _usage(response["usage"]),
        "tools": [tool for each in response["tools"] for tool in _tools(each)],
        "tool_choice": _choice(response["tool_choice"]),
        "text": _text(response["text"]),
        "reasoning": _reasoning(response["reasoning"]),
    }


def open_compaction(compaction: Json) -> Json:
    """The answer of `/responses/compact` as Open Responses has it."""
    return _only(("id", "object", "output", "created_at", "usage"), compaction) | {
        "output": [open_item(item) for item in compaction["output"]],
        "usage": _usage(compaction["usage"]),
    }


def open_item(item: Json) -> Json:
    """An item of the specification's union."""
    kind = item["type"]
    if kind == "custom_tool_call":
        return _only(ITEM_KEYS["function_call"], item) | {"type": "function_call", "arguments": item["input"]}
    if kind in ACTIONS:
        said = msgspec.json.encode(item[ACTIONS[kind]]).decode() if item["status"] == "completed" else ""
        known = {"type": "function_call", "name": kind.removesuffix("_call"), "arguments": said}
        return _only(ITEM_KEYS["function_call"], item | known)
    if kind not in ITEM_KEYS:
        text = _arguments_of(item)
        summary = [{"type": "summary_text", "text": text}] if text or item.get("tools") else []
        return {"type": "reasoning", "id": item["id"], "summary": summary}
    known = _only(ITEM_KEYS[kind], item)
    return known | {"content": [_part(each) for each in item["content"]]} if kind == "message" else known


def _part(part: Json) -> Json:
    """A part of a message, whose citations are of pages alone."""
    cited = part.get("annotations")
    return part | {"annotations": [each for each in cited if each["type"] == "url_citation"]} if cited else part


def _arguments_of(item: Json) -> str:
    """The arguments of a call of a tool that isn't here; "" for a call to be approved, which has no summary events."""
    if item["type"] == "mcp_approval_request":
        return ""
    for said in ("action", "queries"):
        if item.get(said):
            return msgspec.json.encode(item[said]).decode()
    return item.get("arguments") or item.get("code") or ""


def _only(keys: tuple[str, ...], given: Json) -> Json:
    return {key: given[key] for key in keys if key in given}


def _usage(usage: Json | None) -> Json | None:
    if usage is None:
        return None
    return _only(("input_tokens", "output_tokens", "total_tokens"), usage) | {
        "input_tokens_details": _only(("cached_tokens",), usage["input_tokens_details"]),
        "output_tokens_details": _only(("reasoning_tokens",), usage["output_tokens_details"]),
    }


def _tools(tool: Json) -> list[Json]:
    """The functions that a tool is: one, several, or none."""
    kind, function = tool.get("type"), dict.fromkeys(TOOL_KEYS) | {"type": "function"}
    if kind == "function":
        return [function | _only(TOOL_KEYS, tool)]
    if kind == "custom":
        return [function | _only(("name", "description"), tool)]
    if is_run_by_the_client(tool):
        return [function | {"name": kind}]
    inside = cast(list[Json], tool.get("tools") or []) if kind == "namespace" else []
    return [function for each in inside for function in _tools(each)]


def _choice(choice: str | Json) -> str | Json:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type")
    if kind == "allowed_tools":
        allowed = [_choice(each) for each in choice["tools"]]
        return {"type": kind, "mode": choice["mode"], "tools": [one for one in allowed if one != "auto"]}
    if kind in ("function", "custom", *CLIENT):
        return {"type": "function", "name": kind if kind in CLIENT else choice["name"]}
    return "auto"


def _text(text: Json) -> Json:
    """The text settings. The specification has no place for the schema itself, and wants its key all the same."""
    form = text["format"]
    form = form | {"schema": None} if form["type"] == "json_schema" else _only(("type",), form)
    return _only(("verbosity",), text) | {"format": form}


def _reasoning(reasoning: Json | None) -> Json | None:
    if reasoning is None:
        return None
    effort = reasoning.get("effort")
    return {"effort": EFFORTS.get(effort or "", effort), "summary": reasoning.get("summary")}


# --- events -------------------------------------------------------------------------------------------------


def _as(kind: Callable[..., E], members: dict[str, str], **others: object) -> Callable[[Any], E]:
    """The translation of an event whose item isn't in the union into one of another `kind`. `members` maps that one's
    members to the event's names; the `others` are always the same.
    """

    same = {name: name for name in ("item_id", "output_index", "sequence_number")}

    def convert(event: Any) -> E:
        return kind(**others, **{name: getattr(event, ours) for name, ours in (same | members).items()})

    return convert


_as_summary = partial(_as, summary_index=0)
_SILENT = _as(events.FunctionCallArgumentsDelta, {}, delta="")
_BEGUN = _as_summary(events.SummaryPartAdded, {}, part=SummaryText(""))
_DONE = _as_summary(events.SummaryPartDone, {}, part=SummaryText(""))
_MORE = _as_summary(events.SummaryTextDelta, {"delta": "delta"})

TRANSLATIONS: dict[type[Event], Callable[[Any], Event]] = {
    events.CustomToolCallInputDelta: _as(events.FunctionCallArgumentsDelta, {"delta": "delta"}),
    events.CustomToolCallInputDone: _as(events.FunctionCallArgumentsDone, {"arguments": "input"}, name=""),
    events.ShellCallCommandAdded: _SILENT,
    events.ShellCallCommandDelta: _SILENT,
    events.ShellCallCommandDone: _SILENT,
    events.McpCallInProgress: _BEGUN,
    events.CodeInterpreterCallInProgress: _BEGUN,
    events.WebSearchCallInProgress: _BEGUN,
    events.FileSearchCallInProgress: _BEGUN,
    events.McpCallArgumentsDelta: _MORE,
    events.CodeInterpreterCallCodeDelta: _MORE,
    events.McpCallArgumentsDone: _as_summary(events.SummaryTextDone, {"text": "arguments"}),
    events.CodeInterpreterCallCodeDone: _as_summary(events.SummaryTextDone, {"text": "code"}),
    events.McpCallCompleted: _DONE,
    events.McpCallFailed: _DONE,
    events.CodeInterpreterCallInterpreting: _DONE,
    events.McpListToolsInProgress: _BEGUN,
    events.McpListToolsCompleted: _DONE,
}
"""Events of items that the specification lacks, and their translations, whose numbers are the same."""


def open_event(event: Json) -> Json:
    """The JSON of an event that the specification has too, with its keys alone."""
    kind = event["type"]
    if "response" in event:
        return event | {"response": open_response(event["response"])}
    if "item" in event:
        return event | {"item": open_item(event["item"])}
    if kind == "error":
        error = {"type": "server_error"} | _only(("code", "message", "param"), event)
        return {"type": kind, "sequence_number": event["sequence_number"], "error": error}
    if kind == "response.function_call_arguments.done":
        return {key: value for key, value in event.items() if key != "name"}
    if "logprobs" in event:
        return event | {"logprobs": [with_bytes(each) for each in event["logprobs"]]}
    return event
