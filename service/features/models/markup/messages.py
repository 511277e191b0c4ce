"""Stored messages as Chat Completions has them, for a model with a chat template of its own.

Conversations are stored as Harmony's messages whatever their model is, so another model reads them out of these: an
assistant's thoughts, words and calls between two messages of others become one message.

A model whose chat template shows no tools is told of them here: which there are, how to call them, the calls and their
outputs, in the form of calls that its family writes and its parser reads. Only forms with arguments in JSON are told:
the templates of those that write XML show tools. Our marks have to reach the model as such, and no one else's may: so
each has an `own` text within, which is taken out where the others have been broken. Pure.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from service.engine.port import ShownTools
from service.features.models.markup.calls import is_object
from service.features.models.markup.families import MARKUPS, CallsForm
from service.features.models.markup.marks import LOOKS_LIKE_A_MARK
from service.harmony.messages import text_of
from service.harmony.pictures import Pictured
from service.pictures import REFERENCE
from store.turn import StoredMessage

INSTRUCTIONS = "# Instructions\n\n"
"""The beginning of a developer message in Harmony, which no other model is to read."""

NEVER_NAMED = "call_{}"
"""The id of a call that has none, as of one that the service ran, by a checksum of the call: it has to be the same in
each prompt, wherever that begins.
"""

_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
"""Escapes in JSON, also those of a backslash, so that the text behind one isn't taken for an escape."""


def chat_messages(
    messages: Iterable[StoredMessage],
    names: Mapping[str, str],
    *,
    thoughts: bool = True,
    sees: bool = False,
    digits: int = 0,
) -> list[dict[str, Any]]:
    """The messages in order. `names` are those of the tools, by the recipient of their calls; `thoughts` is whether the
    template gets reasoning at all, and `sees` whether the model gets pictures, each as a reference (REFERENCE).
    `digits` is how many of them the id of a call has, 0 where it stays. Text behind calls comes before them, as no
    template has a place for it.
    """
    content = _parts_of if sees else text_of
    made: list[dict[str, Any]] = []
    waiting: list[str] = []
    said: dict[str, Any] | None = None
    for message in messages:
        if message.role == "assistant":
            begins = message.channel == "analysis" and message.recipient is None and "content" in (said or ())
            if said is None or (begins and "tool_calls" not in said):  # outputs come behind the calls
                said = {"role": "assistant"}
                made.append(said)
            _add(said, message, names, waiting, thoughts=thoughts, digits=digits)
            continue
        said = None
        if message.role == "tool":
            made.append(
                {"role": "tool", "tool_call_id": _answered_id(message, waiting, digits), "content": content(message)}
            )
        elif message.role == "developer":
            made.append({"role": "system", "content": text_of(message).removeprefix(INSTRUCTIONS)})
        else:
            made.append({"role": message.role, "content": content(message)})
    for each in made:
        each.setdefault("content", "")  # templates join it to other texts
    return made


_DETAILS = {"low": "low", "high": "high", "original": "high"}
"""The detail of a picture by the words of Chat Completions; servers choose it where none is told."""


def _parts_of(message: StoredMessage) -> str | list[dict[str, Any]]:
    """The text of a message, or its texts and pictures in their order."""
    text = text_of(message)
    if not isinstance(message, Pictured):
        return text
    parts: list[dict[str, Any]] = []
    read = 0
    for each in message.pictures:
        said = text[read : each.at].removesuffix("\n")
        parts += [{"type": "text", "text": said}] if said else []
        url = {"url": f"{REFERENCE}{each.digest}/{each.bytes}"}
        detail = {"detail": _DETAILS[each.detail]} if each.detail in _DETAILS else {}
        parts.append({"type": "image_url", "image_url": url | detail})
        read = each.at + each.line
        read += text[read : read + 1] == "\n"
    return parts + ([{"type": "text", "text": text[read:]}] if text[read:] else [])


def _add(
    said: dict[str, Any],
    message: StoredMessage,
    names: Mapping[str, str],
    waiting: list[str],
    *,
    thoughts: bool,
    digits: int,
) -> None:
    """Adds the parts of an assistant's message to those before it."""
    text = text_of(message)
    if message.recipient is not None:
        id = _id_of(message.call_id or NEVER_NAMED.format(zlib.crc32(message.tokens)), digits)
        waiting.append(id)
        function = {"name": name_of(message.recipient, names), "arguments": spelled_out(_object_of(text))}
        said.setdefault("tool_calls", []).append({"id": id, "type": "function", "function": function})
    elif message.channel == "analysis":
        if thoughts:
            said["reasoning_content"] = said.get("reasoning_content", "") + text
    else:
        before = said.get("content")
        said["content"] = text if before is None else f"{before}\n\n{text}"


def _object_of(arguments: str) -> str:
    """Arguments as a JSON object, as servers hand templates nothing else: text that is none, as of a call that was cut
    short, is its one member. So is what Python's servers alone read, such as NaN or half of a pair of surrogates:
    llama.cpp fails with it.
    """
    if not arguments.strip():
        return "{}"
    return arguments if is_object(arguments) else msgspec.json.encode({"arguments": arguments}).decode()


def spelled_out(arguments: str) -> str:
    """Arguments without escapes of characters that JSON has as they are, or behind a backslash: templates may decode
    them, and characters that form a mark have to be seen before that.
    """
    return _ESCAPES.sub(_spelled_out, arguments) if arguments.lstrip().startswith("{") else arguments


def _spelled_out(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return "/" if escape[0] == "\\/" else escape[0]
    character = chr(int(escape[1], 16))
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else escape[0]


def _answered_id(message: StoredMessage, waiting: list[str], digits: int) -> str:
    """The id of the call that an output answers: its own, or that of the oldest unanswered call."""
    if message.call_id is None and waiting:
        return waiting.pop(0)
    id = _id_of(message.call_id or NEVER_NAMED.format(0), digits)
    if id in waiting:
        waiting.remove(id)
    return id


def _id_of(call: str, digits: int) -> str:
    """The id of a call as a template takes it."""
    return f"{zlib.crc32(call.encode()) % 10**digits:0{digits}}" if digits else call


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


# --- tools that a template does not show ---

_TOOLS = """\
# Tools

You can call functions. Here are their names, what they do, and the JSON schemas of their arguments:

{}
{}
{}

To call one, answer with its name and its arguments as a JSON object, in this form:

{}

Its output is in the next message."""


def form_of(markup: str, shown: ShownTools) -> CallsForm | None:
    """How a model is told to call, by its markup; None where its template shows tools, or its form isn't told."""
    form = MARKUPS[markup].form if markup in MARKUPS and not shown.tools else None
    return None if form is None or form.style != "json" else form


def tools_told(form: CallsForm, tools: Sequence[Mapping[str, Any]], own: str) -> str:
    """The text that lists these tools."""
    listed = b"\n".join(msgspec.json.encode(each["function"]) for each in tools).decode()
    example = _write_calls(form, [("NAME", "ARGUMENTS")], own)
    return _TOOLS.format(_ours("<tools>", own), listed, _ours("</tools>", own), example)


def messages_told(
    messages: Sequence[Mapping[str, Any]], form: CallsForm, shown: ShownTools, own: str
) -> list[dict[str, Any]]:
    """Messages in which calls and their outputs are texts where the template shows none."""
    out: list[dict[str, Any]] = []
    answering = False
    for each in messages:
        message = dict(each)
        if not shown.calls and "tool_calls" in message:
            calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.pop("tool_calls")]
            said = [message["content"]] if message["content"] else []
            message["content"] = "\n".join([*said, _write_calls(form, calls, own)])
        answers = not shown.outputs and message["role"] == "tool"
        if answers:
            opens, closes = f"{_ours('<tool_response>', own)}\n", f"\n{_ours('</tool_response>', own)}"
            message = {"role": "user", "content": _concatenate(opens, message["content"], closes)}
        if answering and message["role"] == "user":  # templates may want turns to alternate
            out[-1]["content"] = _concatenate(out[-1]["content"], "\n", message["content"])
        else:
            out.append(message)
        answering = answers
    return out


def _concatenate(*contents: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Contents one behind the other: parts where one of them has pictures."""
    texts = [each for each in contents if isinstance(each, str)]
    if len(texts) == len(contents):
        return "".join(texts)
    parts = ([{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents)
    return [part for each in parts for part in each]


def _write_calls(form: CallsForm, calls: Sequence[tuple[str, str]], own: str) -> str:
    """Calls, by name and arguments, as models of the form write them."""
    written: list[str] = []
    for place, (name, arguments) in enumerate(calls):
        number = f"{place}{_ours(form.number, own)}" if form.number else ""
        written.append(f"{_ours(form.before, own).format(name)}{number}{arguments}{_ours(form.behind, own)}")
    between = _ours(form.between, own)
    return f"{_ours(form.opens, own)}{between.join(written)}{_ours(form.closes, own)}"


def _ours(text: str, own: str) -> str:
    """A text of ours, whose marks are meant as such."""
    for pattern in LOOKS_LIKE_A_MARK:
        text = pattern.sub(lambda mark: f"{mark[0][0]}{own}{mark[0][1:]}", text)
    return text
