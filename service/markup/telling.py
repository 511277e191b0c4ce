"""Messages about tools for a model whose chat template shows none: the tools, how to call them, the calls and outputs.

The messages use the form of calls that the family writes and its parser reads. Only forms with arguments in JSON are
told: the templates of those that write XML show tools. Our marks have to reach the model as such, and no one else's
may: so each has an `own` text within, which is taken out where the others have been broken. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.markup.marks import LOOKS_LIKE_A_MARK
from service.markup.speech import Shown
from service.markup.tags import FORMS, Form

_TOOLS = """\
# Tools

You can call functions. Here are their names, what they do, and the JSON schemas of their arguments:

{}
{}
{}

To call one, answer with its name and its arguments as a JSON object, in this form:

{}

Its output is in the next message."""

_NAME, _ARGUMENTS = "NAME", "ARGUMENTS"


def form_of(markup: str, shown: Shown) -> Form | None:
    """How a model is told to call, by its markup; None where its template shows tools, or its form isn't told."""
    form = FORMS.get(markup)
    return None if shown.tools or form is None or form.style != "json" else form


def tools_told(form: Form, tools: Sequence[Mapping[str, Any]], own: str) -> str:
    """The text that lists these tools."""
    listed = b"\n".join(msgspec.json.encode(each["function"]) for each in tools).decode()
    return _TOOLS.format(_ours("<tools>", own), listed, _ours("</tools>", own), _written(form, [_EXAMPLE], own))


def messages_told(messages: Sequence[Mapping[str, Any]], form: Form, shown: Shown, own: str) -> list[dict[str, Any]]:
    """Messages in which calls and their outputs are texts where the template shows none."""
    out: list[dict[str, Any]] = []
    answering = False
    for each in messages:
        message = dict(each)
        if not shown.calls and "tool_calls" in message:
            calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.pop("tool_calls")]
            said = [message["content"]] if message["content"] else []
            message["content"] = "\n".join([*said, _written(form, calls, own)])
        answers = not shown.outputs and message["role"] == "tool"
        if answers:
            text = f"{_ours('<tool_response>', own)}\n{message['content']}\n{_ours('</tool_response>', own)}"
            message = {"role": "user", "content": text}
        if answering and message["role"] == "user":  # templates may want turns to alternate
            out[-1]["content"] += f"\n{message['content']}"
        else:
            out.append(message)
        answering = answers
    return out


_EXAMPLE = (_NAME, _ARGUMENTS)


def _written(form: Form, calls: Sequence[tuple[str, str]], own: str) -> str:
    """Calls, by name and arguments, as models of the form write them."""
    written: list[str] = []
    for place, (name, arguments) in enumerate(calls):
        number = f"{place}{_ours('<|tool_call_argument_begin|>', own)}" if form.numbered else ""
        written.append(f"{_ours(form.before, own).format(name)}{number}{arguments}{_ours(form.behind, own)}")
    between = _ours(form.between, own)
    return f"{_ours(form.opens, own)}{between.join(written)}{_ours(form.closes, own)}"


def _ours(text: str, own: str) -> str:
    """A text of ours, whose marks are meant as such."""
    for pattern in LOOKS_LIKE_A_MARK:
        text = pattern.sub(lambda mark: f"{mark[0][0]}{own}{mark[0][1:]}", text)
    return text
