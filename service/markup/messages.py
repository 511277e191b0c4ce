"""Stored messages as Chat Completions has them, for a model with a chat template of its own.

Conversations are stored as Harmony's messages whatever their model is, so another model reads them out of these: an
assistant's thoughts, words and calls between two messages of others become one message. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from service.harmony.messages import text_of
from store.turn import StoredMessage

INSTRUCTIONS = "# Instructions\n\n"
"""The beginning of a developer message in Harmony, which no other model is to read."""

NEVER_NAMED = "call_{}"
"""The id of a call of a history that the client keeps itself, by its number: Harmony has none."""

_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
"""Escapes in JSON, also those of a backslash, so that the text behind one isn't taken for an escape."""


def chat_messages(
    messages: Iterable[StoredMessage], names: Mapping[str, str], *, thoughts: bool = True
) -> list[dict[str, Any]]:
    """The messages in order. `names` are those of the tools, by the recipient of their calls; `thoughts` is whether the
    template gets reasoning at all.
    """
    made: list[dict[str, Any]] = []
    waiting: list[str] = []
    said: dict[str, Any] | None = None
    for number, message in enumerate(messages):
        if message.role == "assistant":
            if said is None or (message.channel == "analysis" and message.recipient is None and "content" in said):
                said = {"role": "assistant"}
                made.append(said)
            _add(said, message, names, waiting, number, thoughts=thoughts)
            continue
        said = None
        if message.role == "tool":
            made.append({"role": "tool", "tool_call_id": _answered(message, waiting), "content": text_of(message)})
        elif message.role == "developer":
            made.append({"role": "system", "content": text_of(message).removeprefix(INSTRUCTIONS)})
        else:
            made.append({"role": message.role, "content": text_of(message)})
    for each in made:
        each.setdefault("content", "")  # templates join it to other texts
    return made


def _add(
    said: dict[str, Any],
    message: StoredMessage,
    names: Mapping[str, str],
    waiting: list[str],
    number: int,
    *,
    thoughts: bool,
) -> None:
    """Adds the parts of an assistant's message to those before it."""
    text = text_of(message)
    if message.recipient is not None:
        id = message.call_id or NEVER_NAMED.format(number)
        waiting.append(id)
        function = {"name": name_of(message.recipient, names), "arguments": spelled_out(text)}
        said.setdefault("tool_calls", []).append({"id": id, "type": "function", "function": function})
    elif message.channel == "analysis":
        if thoughts:
            said["reasoning_content"] = said.get("reasoning_content", "") + text
    else:
        before = said.get("content")
        said["content"] = text if before is None else f"{before}\n\n{text}"


def spelled_out(arguments: str) -> str:
    """Arguments without escapes of characters that JSON has as they are: templates may decode them, and characters that
    form a mark have to be seen before that.
    """
    return _ESCAPES.sub(_spelled_out, arguments) if arguments.lstrip().startswith("{") else arguments


def _spelled_out(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return "/" if escape[0] == "\\/" else escape[0]
    character = chr(int(escape[1], 16))
    legal = character.isprintable() and character not in '"\\'
    return character if legal else escape[0]


def _answered(message: StoredMessage, waiting: list[str]) -> str:
    """The id of the call that an output answers: its own, or that of the oldest unanswered call."""
    if message.call_id is not None:
        if message.call_id in waiting:
            waiting.remove(message.call_id)
        return message.call_id
    return waiting.pop(0) if waiting else NEVER_NAMED.format(0)


def name_of(recipient: str, names: Mapping[str, str]) -> str:
    """The name by which a model with a chat template knows a tool."""
    return names.get(recipient) or recipient.removeprefix("functions.").replace(".", "__")


def tool_names(recipients: Sequence[str]) -> dict[str, str]:
    """A name for each recipient, none twice: the bare one where no other has it, else with its namespace."""
    bare = Counter(recipient.rpartition(".")[2] for recipient in recipients)
    named: dict[str, str] = {}
    taken = {name for name, times in bare.items() if times == 1}
    for recipient in recipients:
        name = recipient.rpartition(".")[2]
        if bare[name] > 1:
            name = recipient.replace(".", "__")
            while name in taken:
                name += "_"
            taken.add(name)
        named[recipient] = name
    return named
