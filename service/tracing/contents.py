"""What was written, as a span shows it where an operator wants that: the messages of OpenTelemetry's GenAI conventions.

Pure. Items of the API come in as JSON, and of all that they say no more goes on than a span may have: what is cut off
ends in an ellipsis. Source: https://github.com/open-telemetry/semantic-conventions-genai (gen-ai-input-messages.json).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from service.spans import Fact

ELLIPSIS = "…"

MESSAGE_BYTES = 64
"""What a message takes besides its text."""

_ITEMS = msgspec.json.Decoder(list[dict[str, Any]])

_TEXTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")
"""The kinds of content parts that are text."""


def shown(side: Literal["input", "output"], items: bytes, limit: int, *, whole: bool = False) -> dict[str, Fact]:
    """The facts of what was given or made: items as JSON, of at most about `limit` bytes. All have them as one value,
    and what isn't the `whole` around calls of models and tools has them as messages.
    """
    text = msgspec.json.encode(_messages(_ITEMS.decode(items), limit)).decode()
    value: dict[str, Fact] = {f"{side}.value": text, f"{side}.mime_type": "application/json"}
    return value if whole else value | {f"gen_ai.{side}.messages": text}


def instructions_shown(instructions: str | None, limit: int) -> dict[str, Fact]:
    """The facts of the instructions that a model was given besides."""
    if not instructions:
        return {}
    parts = [{"type": "text", "content": shortened(instructions, limit)}]
    return {"gen_ai.system_instructions": msgspec.json.encode(parts).decode()}


def shortened(text: str, limit: int) -> str:
    """A text of at most so many bytes, and an ellipsis where it was longer."""
    if len(text) <= limit // 4 or len(whole := text.encode("utf-8", "replace")) <= limit:
        return text
    return whole[:limit].decode("utf-8", "ignore") + ELLIPSIS


def _messages(items: Iterable[Mapping[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Items as messages, as many as there is room for."""
    messages: list[dict[str, Any]] = []
    for item in items:
        limit -= MESSAGE_BYTES
        if limit <= 0:
            break
        role, parts = _read(item)
        for part in parts:
            key = next(key for key in ("content", "arguments", "response") if key in part)
            part[key] = shortened(part[key], max(limit, 0))
            limit -= len(part[key])
        messages.append({"role": role, "parts": parts})
    return messages


def _read(item: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Whose message an item is, and its parts."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        texts = _texts(item.get("content"))
        return str(item.get("role", "assistant")), [{"type": "text", "content": text} for text in texts]
    if kind == "reasoning":
        texts = _texts(item.get("content") or item.get("summary"))
        return "assistant", [{"type": "reasoning", "content": text} for text in texts]
    id = str(item.get("call_id") or item.get("id") or "")
    if kind.endswith("_output"):
        said = item.get("output")
        text = said if isinstance(said, str) else "\n".join(_texts(said))
        return "tool", [{"type": "tool_call_response", "id": id, "response": text}]
    name = str(item.get("name") or kind)
    given = item.get("arguments", item.get("input", item.get("code")))
    call = {"type": "tool_call", "id": id, "name": name, "arguments": given if isinstance(given, str) else ""}
    answer = item.get("output")
    more = [{"type": "tool_call_response", "id": id, "response": answer}] if isinstance(answer, str) else []
    return "assistant", [call, *more]


def _texts(content: Any) -> Iterator[str]:
    """The texts of a content, which is one itself or has parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:  # type: ignore[reportUnknownVariableType]
            if isinstance(part, dict) and part.get("type") in _TEXTS:  # type: ignore[reportUnknownMemberType]
                yield str(part.get("text") or part.get("refusal") or "")  # type: ignore[reportUnknownMemberType, reportUnknownArgumentType]
