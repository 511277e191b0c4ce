"""The forms in which other products keep conversations, each with what tells it and how it is read.

A value that isn't as its product writes it raises LookupError, TypeError, ValueError, AttributeError, ArithmeticError
or RecursionError; whoever reads it counts that. Pictures and files are counted, and left out.

These tables are our own, as atif-make 0.10 needs Python 3.12, and lacks five of the eight forms: ChatGPT's and
Anthropic's exports, Open WebUI's, ShareGPT and fine-tuning data.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from service.features.trajectories.stories import (
    Item,
    StoryNode,
    call_item,
    in_a_row,
    inner,
    message_item,
    outcome,
    reasoning_item,
)

Lost = Counter[str]
Part = tuple[list[Item], float, str]
"""Items of one side, their time, and the model."""

FILES = "pictures and files"

_TEXTS = ("text", "refusal", "logs", "stdout", "stderr")
"""The members of parts that are texts."""

_ROLES = {
    **dict.fromkeys(("gpt", "chatgpt", "bing", "model", "bot", "function_call"), "assistant"),
    **dict.fromkeys(("observation", "function_response", "function"), "tool"),
    "human": "user",
    "developer": "developer",
    "system": "system",
    "assistant": "assistant",
    "tool": "tool",
}


class StoryForm(NamedTuple):
    """A form: what it is call, the members of which one set tells it, and how its nodes are read. Of a `session` each
    line of a file is a part.
    """

    name: str
    told_by: Sequence[str]
    read: Callable[[Any, Lost], Iterable[StoryNode]]
    named_by: Sequence[str] = ("sessionId", "conversation_id", "trajectory_id", "id", "uuid")
    session: bool = False

    def fits(self, value: Any) -> bool:
        return any(name in value for name in self.told_by)

    def id_of(self, value: Any, content: bytes) -> str:
        """The id of a conversation: its own, or else a digest of it."""
        own: Any = next((value[name] for name in self.named_by if value.get(name)), None)
        return str(own)[:100] if own else blake2b(content, digest_size=16).hexdigest()


def moment(value: Any) -> float:
    """A time in seconds since 1970, of a number, also of milliseconds, or of an ISO text; 0 where there is none."""
    if isinstance(value, str):
        return max(0.0, datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp())
    number = float(value or 0)
    return number / 1000 if number > 1e11 else number


def text_of(content: Any, lost: Lost) -> str:
    """The text of a content: a text, or parts of which some have one."""
    if isinstance(content, str):
        return content
    parts: list[Any] = [content] if isinstance(content, dict) else content or []
    texts: list[Any] = [
        part if isinstance(part, str) else "\n".join([part[name] for name in _TEXTS if part.get(name)]) or None
        for part in parts
    ]
    lost[FILES] += texts.count(None)
    return "\n".join(filter(None, texts))


def _dump(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value or {}, ensure_ascii=False)


def _speech(role: str, text: str, thoughts: str = "") -> list[Item]:
    """Reasoning and words of one side, where there are any."""
    return ([reasoning_item(thoughts)] if thoughts else []) + ([message_item(role, text)] if text else [])


def _chat(messages: Iterable[Any], lost: Lost) -> Iterator[Part]:
    """Messages as Chat Completions and ShareGPT have them. A call without an id is answered in its order."""
    waiting = list[str]()
    for place, message in enumerate(messages):
        named: str = message.get("role") or message["from"]
        role, at = _ROLES.get(named, "user"), moment(message.get("timestamp"))
        text = text_of(message["content"] if "content" in message else message.get("value"), lost)
        if role == "tool":
            id = message.get("tool_call_id") or (waiting[0] if waiting else "")
            waiting = [each for each in waiting if each != id]
            yield [outcome(id, text)], at, ""
            continue
        calls: list[Any] = list(inner(message, "tool_calls")) if role == "assistant" else []
        if named == "function_call":
            calls, text = [{"function": json.loads(text)}], ""
        made = _speech(role, text, str(inner(message, "reasoning_content") or ""))
        for number, call in enumerate(calls):
            waiting.append(call.get("id") or f"call_{place}_{number}")
            made.append(call_item(waiting[-1], call["function"]["name"], _dump(call["function"].get("arguments"))))
        yield made, at, str(message.get("model") or "")


def _atif(value: Any, lost: Lost) -> Iterator[Part]:
    for step in value["steps"]:
        at, text = moment(step.get("timestamp")), text_of(step.get("message"), lost)
        role = "assistant" if step["source"] == "agent" else str(step["source"])
        made = _speech(role, text, step.get("reasoning_content") or "")
        for call in inner(step, "tool_calls"):
            made.append(call_item(call["tool_call_id"], call["function_name"], _dump(call["arguments"])))
        yield made, at, str(step.get("model_name") or value["agent"].get("model_name") or "")
        results = inner(step.get("observation"), "results")
        yield (
            [outcome(each.get("source_call_id") or "", text_of(each.get("content"), lost)) for each in results],
            at,
            "",
        )


def _chat_gpt(value: Any, lost: Lost) -> Iterator[StoryNode]:
    calls = set[str]()
    for id, node in value["mapping"].items():
        message, content, items = node.get("message"), inner(node.get("message"), "content"), list[Item]()
        role, to = inner(inner(message, "author"), "role"), inner(message, "recipient") or "all"
        text = text_of(inner(content, "parts") or inner(content, "text") or inner(content, "result"), lost)
        if role == "assistant" and to != "all":
            calls.add(id)
            items = [call_item(id, to.replace(".", "_"), _dump({"input": text}))]
        elif role == "tool":
            items = [outcome(node.get("parent") if node.get("parent") in calls else "", text)]
        elif role:
            thoughts = [each.get("content") or each.get("summary") or "" for each in inner(content, "thoughts")]
            items = _speech(_ROLES.get(role, "user"), text, "\n".join(thoughts))
        at, model = moment(inner(message, "create_time")), inner(inner(message, "metadata"), "model_slug")
        yield StoryNode(id, node.get("parent"), items, at, str(model or ""))


def _anthropic(value: Any, lost: Lost) -> Iterator[StoryNode]:
    before = None
    for message in value["chat_messages"]:
        role, parts = _ROLES[message["sender"]], inner(message, "content")
        lost[FILES] += len(inner(message, "attachments")) + len(inner(message, "files"))
        lost["parts that are no text"] += sum(part["type"] not in ("text", "thinking") for part in parts)
        text = "\n".join([part["text"] for part in parts if part["type"] == "text"]) or message.get("text") or ""
        thoughts = "\n".join([part["thinking"] for part in parts if part["type"] == "thinking"])
        parent, at = message.get("parent_message_uuid", before), moment(message.get("created_at"))
        yield StoryNode(message["uuid"], parent, _speech(role, text, thoughts), at)
        before = message["uuid"]


def _open_webui(value: Any, lost: Lost) -> Iterator[StoryNode]:
    for id, message in value["chat"]["history"]["messages"].items():
        lost[FILES] += len(inner(message, "files"))
        for items, at, model in _chat([message], lost):
            yield StoryNode(id, message.get("parentId"), items, at, model)


def _codex(lines: Iterable[Any], lost: Lost) -> Iterator[Part]:
    model = ""
    for line in lines:
        if line.get("type") == "turn_context":
            model = str(line["payload"].get("model") or "")
        item: Any = line["payload"] if line.get("type") == "response_item" else {}
        kind, made = str(item.get("type", "")), list[Item]()
        if kind == "message":
            made = _speech(item["role"], text_of(item["content"], lost))
        elif kind == "reasoning":
            made = _speech("assistant", "", text_of(item.get("content") or item.get("summary"), lost))
            lost["sealed reasoning"] += not made
        elif kind.endswith("_call") and item.get("call_id"):
            given = item.get("arguments", item.get("action", {"input": item.get("input")}))
            made = [call_item(item["call_id"], item.get("name") or kind, _dump(given))]
        elif kind.endswith("_output"):
            output: Any = item.get("output")
            output = inner(output, "content") or json.dumps(output) if isinstance(output, dict) else output
            made = [outcome(item["call_id"], text_of(output, lost))]
        elif kind:
            lost[kind] += 1
        yield made, moment(line.get("timestamp")), model


def _command_line(lines: Iterable[Any], lost: Lost) -> Iterator[StoryNode]:
    for line in lines:
        if "uuid" not in line:
            continue
        message, items = line.get("message"), list[Item]()
        content = inner(message, "content")
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match part["type"]:
                case "text" | "thinking":
                    items += _speech(message["role"], part.get("text", ""), part.get("thinking", ""))
                case "tool_use":
                    items.append(call_item(part["id"], part["name"], _dump(part["input"])))
                case "tool_result":
                    items.insert(0, outcome(part["tool_use_id"], text_of(part.get("content"), lost)))
                case _:
                    lost[FILES] += 1
        at, model = moment(line.get("timestamp")), str(inner(message, "model") or "")
        yield StoryNode(line["uuid"], line.get("parentUuid"), items, at, model)


def _messages(value: Any, lost: Lost) -> Iterator[Part]:
    return _chat(value["messages"] if "messages" in value else value["conversations"], lost)


def _row(read: Callable[[Any, Lost], Iterator[Part]]) -> Callable[[Any, Lost], Iterator[StoryNode]]:
    """Reads a form that knows no branches."""
    return lambda value, lost: in_a_row(read(value, lost))


FORMS = (
    StoryForm("ATIF", ("steps",), _row(_atif)),
    StoryForm("ChatGPT's export", ("mapping",), _chat_gpt),
    StoryForm("Anthropic's export", ("chat_messages",), _anthropic),
    StoryForm("Open WebUI's chats", ("chat",), _open_webui),
    StoryForm("ShareGPT", ("conversations",), _row(_messages)),
    StoryForm("OpenAI's fine-tuning JSONL", ("messages",), _row(_messages)),
    StoryForm("a Codex rollout", ("payload",), _row(_codex), session=True),
    StoryForm(
        "sessions of Anthropic's command line", ("sessionId", "leafUuid", "snapshot"), _command_line, session=True
    ),
)

KNOWN = "harmonium's own export, " + ", ".join(form.name for form in FORMS)
