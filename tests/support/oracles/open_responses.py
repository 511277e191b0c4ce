"""The Open Responses specification, version 2026-04-24, as far as answers go: which events, items and keys there are.

Written from the specification's OpenAPI document, with every object closed. It reads decoded JSON and must never import
from `service`: it is there to disagree with it.
"""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

_TEXT = {"item_id", "output_index", "content_index"}
_SUMMARY = {"item_id", "output_index", "summary_index"}
_CALL = {"item_id", "output_index"}
EVENTS: dict[str, set[str]] = {
    **{
        f"response.{status}": {"response"}
        for status in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
    },
    "response.output_item.added": {"output_index", "item"},
    "response.output_item.done": {"output_index", "item"},
    "response.content_part.added": {*_TEXT, "part"},
    "response.content_part.done": {*_TEXT, "part"},
    "response.output_text.delta": {*_TEXT, "delta", "logprobs"},
    "response.output_text.done": {*_TEXT, "text", "logprobs"},
    "response.refusal.delta": {*_TEXT, "delta"},
    "response.refusal.done": {*_TEXT, "refusal"},
    "response.reasoning.delta": {*_TEXT, "delta"},
    "response.reasoning.done": {*_TEXT, "text"},
    "response.reasoning_summary_part.added": {*_SUMMARY, "part"},
    "response.reasoning_summary_part.done": {*_SUMMARY, "part"},
    "response.reasoning_summary_text.delta": {*_SUMMARY, "delta"},
    "response.reasoning_summary_text.done": {*_SUMMARY, "text"},
    "response.function_call_arguments.delta": {*_CALL, "delta"},
    "response.function_call_arguments.done": {*_CALL, "arguments"},
    "error": {"error"},
    "harmonium:response.steer.failed": {"steer", "code", "message"},
    "harmonium:response.code_interpreter_call.completed": _CALL,
    "harmonium:response.web_search_call.searching": _CALL,
    "harmonium:response.web_search_call.completed": _CALL,
    "harmonium:response.file_search_call.searching": _CALL,
    "harmonium:response.file_search_call.completed": _CALL,
    "harmonium:response.output_text.annotation.added": {*_TEXT, "annotation_index", "annotation"},
}
"""What each has besides its type, its number and, where it is a delta, its obfuscation. The last ones are ours, with a
prefix, as the specification wants it of what it doesn't have."""

REQUIRED: dict[str, set[str]] = {
    "message": {"id", "status", "role", "content"},
    "function_call": {"id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"id", "call_id", "output", "status"},
    "reasoning": {"id", "summary"},
    "compaction": {"id", "encrypted_content"},
}
OPTIONAL: dict[str, set[str]] = {"message": {"phase"}, "reasoning": {"content", "encrypted_content"}}
PARTS: dict[str, set[str]] = {
    "input_text": {"text"},
    "input_image": {"image_url", "detail"},
    "output_text": {"text", "annotations", "logprobs"},
    "summary_text": {"text"},
    "reasoning_text": {"text"},
}
RESPONSE = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
}  # fmt: skip
NULL_IS_FINE = {
    "completed_at", "incomplete_details", "previous_response_id", "instructions", "error", "reasoning", "usage",
    "max_output_tokens", "max_tool_calls", "safety_identifier", "prompt_cache_key",
}  # fmt: skip


def check_stream(events: Sequence[Json]) -> Json:
    """Check each event of a whole stream and return its last response. Raises AssertionError."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        check_event(event)
    return events[-1]["response"]


def check_event(event: Json) -> None:
    """Check an event by itself. Raises AssertionError."""
    kind = event["type"]
    padding = {"obfuscation"} if kind.endswith(".delta") else set[str]()
    assert event.keys() - padding == EVENTS[kind] | {"type", "sequence_number"}, event
    if "response" in event:
        check_response(event["response"])
    if "item" in event:
        check_item(event["item"])
    if "part" in event:
        _check_part(event["part"])
    for logprob in event.get("logprobs", ()):
        _check_logprob(logprob)
    if kind == "error":
        assert event["error"].keys() == {"type", "code", "message", "param"}


def check_response(response: Json) -> None:
    """Check a Response. Raises AssertionError."""
    assert response.keys() == RESPONSE
    assert {key for key, value in response.items() if value is None} <= NULL_IS_FINE
    for item in response["output"]:
        check_item(item)
    for tool in response["tools"]:
        assert tool.keys() == {"type", "name", "description", "parameters", "strict"}
        assert tool["type"] == "function"
    _check_choice(response["tool_choice"])
    assert response["text"]["format"]["type"] in ("text", "json_object", "json_schema")
    assert response["text"]["format"].get("schema") is None
    assert response["reasoning"].keys() == {"effort", "summary"}
    assert response["reasoning"]["effort"] in (None, "none", "low", "medium", "high", "xhigh")
    if response["usage"] is not None:
        check_usage(response["usage"])


def check_usage(usage: Json) -> None:
    """Check the usage of an answer. Raises AssertionError."""
    details = {"input_tokens_details", "output_tokens_details"}
    assert usage.keys() == {"input_tokens", "output_tokens", "total_tokens"} | details
    assert usage["input_tokens_details"].keys() == {"cached_tokens"}
    assert usage["output_tokens_details"].keys() == {"reasoning_tokens"}


def check_item(item: Json) -> None:
    """Check an item. Raises AssertionError."""
    kind = item["type"]
    keys = item.keys() - {"type"}
    assert REQUIRED[kind] <= keys <= REQUIRED[kind] | OPTIONAL.get(kind, set()), item
    assert None not in item.values()
    for part in (*item.get("content", ()), *item.get("summary", ())):
        _check_part(part)


def _check_part(part: Json) -> None:
    assert part.keys() - {"type"} == PARTS[part["type"]], part
    for logprob in part.get("logprobs", ()):
        _check_logprob(logprob)


def _check_logprob(logprob: Json) -> None:
    assert logprob.keys() == {"token", "logprob", "bytes", "top_logprobs"}
    assert all(top.keys() == {"token", "logprob", "bytes"} for top in logprob["top_logprobs"])


def _check_choice(choice: str | Json) -> None:
    if isinstance(choice, str):
        assert choice in ("none", "auto", "required")
    elif choice["type"] == "allowed_tools":
        assert choice.keys() == {"type", "mode", "tools"}
        assert all(tool.keys() == {"type", "name"} and tool["type"] == "function" for tool in choice["tools"])
    else:
        assert choice.keys() == {"type", "name"}
        assert choice["type"] == "function"
