"""The forms in which other products keep conversations, each with what tells it and how it is read.

A value that isn't as its product writes it raises LookupError, TypeError, ValueError or AttributeError; whoever reads
it counts that. Pictures and files are counted, and left out.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from service.features.trajectories.stories import Item, StoryNode, called, in_a_row, outcome, said, thought

Json = Mapping[str, Any]
Lost = Counter[str]

_MADE = ("assistant", "gpt", "chatgpt", "bing", "model", "bot")
_ROLES = {"human": "user", "tool": "tool", "observation": "tool", "function_response": "tool", "function": "tool"}


class StoryForm(NamedTuple):
    """A form: what it is called, the members of which one set tells it, and how its nodes are read. A `session` is a
    file of which each line is a part.
    """

    name: str
    told_by: Sequence[Sequence[str]]
    read: Callable[[Any, Lost], Iterable[StoryNode]]
    named_by: Sequence[str] = ("id", "uuid", "conversation_id", "trajectory_id", "session_id")
    session: bool = False

    def fits(self, value: Json) -> bool:
        return any(all(name in value for name in names) for names in self.told_by)

    def id_of(self, value: Any, content: bytes) -> str:
        """The id of a conversation: its own, or else a digest of it."""
        own = next((value[name] for name in self.named_by if isinstance(value, dict) and value.get(name)), None)
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
    texts = list[str]()
    for part in content or ():
        text = part if isinstance(part, str) else part.get("text") or part.get("refusal")
        if isinstance(text, str):
            texts.append(text)
        else:
            lost["pictures and files"] += 1
    return "\n".join(texts)


def _dumped(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value or {}, ensure_ascii=False)


def _chat(messages: Iterable[Json], lost: Lost) -> Iterator[tuple[list[Item], float, str]]:
    """Messages as Chat Completions and ShareGPT have them. A call without an id is answered in its order."""
    open_calls = list[str]()
    for place, message in enumerate(messages):
        role = message.get("role") or message["from"]
        text = text_of(message["content"] if "content" in message else message.get("value"), lost)
        at, model = moment(message.get("timestamp")), str(message.get("model") or "")
        if role in _MADE or role == "function_call":
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            made = [thought(reasoning)] if isinstance(reasoning, str) and reasoning else []
            calls = list(message.get("tool_calls") or ())
            if role == "function_call":
                calls, text = [{"function": json.loads(text)}], ""
            made += [said("assistant", text)] if text else []
            for number, call in enumerate(calls):
                function, id = call["function"], call.get("id") or f"call_{place}_{number}"
                made.append(called(id, function["name"], _dumped(function.get("arguments"))))
                open_calls.append(id)
            yield made, at, model
        elif _ROLES.get(role, role) == "tool":
            id = message.get("tool_call_id") or (open_calls[0] if open_calls else "")
            open_calls = [each for each in open_calls if each != id]
            yield [outcome(id, text)], at, ""
        else:
            role = _ROLES.get(role, role)
            yield ([said(role if role in ("user", "system", "developer") else "user", text)] if text else []), at, ""


def _share_gpt(value: Json, lost: Lost) -> Iterator[StoryNode]:
    return in_a_row(_chat(value["conversations"], lost))


def _fine_tuning(value: Json, lost: Lost) -> Iterator[StoryNode]:
    return in_a_row(_chat(value["messages"], lost))


def _atif(value: Json, lost: Lost) -> Iterator[StoryNode]:
    def parts() -> Iterator[tuple[list[Item], float, str]]:
        for step in value["steps"]:
            at, text = moment(step.get("timestamp")), text_of(step.get("message"), lost)
            results = (step.get("observation") or {}).get("results") or ()
            if step["source"] == "agent":
                made = [thought(step["reasoning_content"])] if step.get("reasoning_content") else []
                made += [said("assistant", text)] if text else []
                for call in step.get("tool_calls") or ():
                    made.append(called(call["tool_call_id"], call["function_name"], _dumped(call["arguments"])))
                yield made, at, str(step.get("model_name") or value["agent"].get("model_name") or "")
            elif text:
                yield [said("user" if step["source"] == "user" else "system", text)], at, ""
            yield (
                [outcome(each.get("source_call_id") or "", text_of(each.get("content"), lost)) for each in results],
                at,
                "",
            )

    return in_a_row(parts())


def _chat_gpt(value: Json, lost: Lost) -> Iterator[StoryNode]:
    calls = dict[str, str]()
    for id, node in value["mapping"].items():
        message: Json = node.get("message") or {}
        content: Json = message.get("content") or {}
        role, to = (message.get("author") or {}).get("role"), message.get("recipient") or "all"
        parts = content.get("parts") or content.get("text") or content.get("result") or ""
        thoughts = [each.get("content") or each.get("summary") or "" for each in content.get("thoughts") or ()]
        text, items = text_of(parts, lost), list[Item]()
        if role == "assistant" and to != "all":
            calls[id], items = id, [called(id, to.replace(".", "_"), _dumped({"input": text}))]
        elif role == "assistant":
            items = [thought("\n".join(thoughts))] if thoughts else [said("assistant", text)] if text else []
        elif role == "tool":
            items = [outcome(_above(value["mapping"], id, calls), text)]
        elif text:
            items = [said("system" if role == "system" else "user", text)]
        model = str((message.get("metadata") or {}).get("model_slug") or "")
        yield StoryNode(id, node.get("parent"), items, moment(message.get("create_time")), model)


def _above(mapping: Json, id: str, calls: Mapping[str, str]) -> str:
    """The call above a node; empty for none."""
    parent = mapping[id].get("parent")
    return calls.get(parent, "") if parent else ""


def _claude(value: Json, lost: Lost) -> Iterator[StoryNode]:
    before = None
    for message in value["chat_messages"]:
        mine = message["sender"] == "assistant"
        lost["pictures and files"] += len(message.get("attachments") or ()) + len(message.get("files") or ())
        text = text_of([part for part in message.get("content") or () if part.get("type") == "text"], lost)
        text = text or message.get("text") or ""
        others = [part["type"] for part in message.get("content") or () if part.get("type") not in ("text", "thinking")]
        lost["parts that are no text"] += len(others)
        thoughts = [part["thinking"] for part in message.get("content") or () if part.get("type") == "thinking"]
        items = [thought("\n".join(thoughts))] if mine and thoughts else []
        items += [said("assistant" if mine else "user", text)] if text else []
        parent = message.get("parent_message_uuid", before)
        yield StoryNode(message["uuid"], parent, items, moment(message.get("created_at")))
        before = message["uuid"]


def _open_webui(value: Json, lost: Lost) -> Iterator[StoryNode]:
    for id, message in value["chat"]["history"]["messages"].items():
        ((items, at, model),) = _chat([message], lost)
        lost["pictures and files"] += len(message.get("files") or ())
        yield StoryNode(id, message.get("parentId"), items, at, model)


def _codex(lines: Iterable[Json], lost: Lost) -> Iterator[StoryNode]:
    def parts() -> Iterator[tuple[list[Item], float, str]]:
        model = ""
        for line in lines:
            item = line["payload"] if line.get("type") == "response_item" else {}
            if line.get("type") == "turn_context":
                model = str(line["payload"].get("model") or "")
            kind, at = str(item.get("type", "")), moment(line.get("timestamp"))
            if kind == "message":
                text = text_of(item["content"], lost)
                yield ([said(item["role"], text)] if text else []), at, model
            elif kind == "reasoning":
                text = text_of(item.get("content") or item.get("summary"), lost)
                lost["sealed reasoning"] += not text
                yield ([thought(text)] if text else []), at, model
            elif kind.endswith("_call") and item.get("call_id"):
                given = item.get("arguments", item.get("action", {"input": item.get("input")}))
                yield [called(item["call_id"], item.get("name") or kind, _dumped(given))], at, model
            elif kind.endswith("_output"):
                output = item.get("output")
                if isinstance(output, dict):
                    output = output.get("content") or json.dumps(output)
                yield [outcome(item["call_id"], text_of(output, lost))], at, model
            elif kind:
                lost[kind] += 1

    return in_a_row(parts())


def _claude_code(lines: Iterable[Json], lost: Lost) -> Iterator[StoryNode]:
    for line in lines:
        if "uuid" not in line:
            continue
        message: Json = line.get("message") or {}
        content = message.get("content") or ()
        items, text = list[Item](), [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in text:
            match part["type"]:
                case "text":
                    items.append(said(message["role"], part["text"]))
                case "thinking":
                    items += [thought(part["thinking"])] if part["thinking"] else []
                case "tool_use":
                    items.append(called(part["id"], part["name"], _dumped(part["input"])))
                case "tool_result":
                    items.insert(0, outcome(part["tool_use_id"], text_of(part.get("content"), lost)))
                case kind:
                    lost["pictures and files" if kind in ("image", "document") else kind] += 1
        at, model = moment(line.get("timestamp")), str(message.get("model") or "")
        yield StoryNode(line["uuid"], line.get("parentUuid"), items, at, model)


FORMS = (
    StoryForm("ATIF", [("schema_version", "steps")], _atif),
    StoryForm("ChatGPT's export", [("mapping",)], _chat_gpt, ("conversation_id", "id")),
    StoryForm("Claude's export", [("chat_messages",)], _claude),
    StoryForm("Open WebUI's chats", [("chat",)], _open_webui),
    StoryForm("ShareGPT", [("conversations",)], _share_gpt),
    StoryForm("OpenAI's fine-tuning JSONL", [("messages",)], _fine_tuning, ()),
    StoryForm("a Codex rollout", [("type", "payload")], _codex, session=True),
    StoryForm(
        "Claude Code's JSONL",
        [("type", "sessionId"), ("type", "leafUuid"), ("type", "snapshot")],
        _claude_code,
        session=True,
    ),
)

KNOWN = "harmonium's own export, " + ", ".join(form.name for form in FORMS)
