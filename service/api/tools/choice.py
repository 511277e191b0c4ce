"""The `tool_choice` of a request: whether the model must call a tool, and which ones it may call.

A choice limits the calls, never the prompt: the prompt lists all tools, so its beginning stays cached. The choice is
enforced while sampling (responses/output/next_step.py).
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.api.tools.builtin import DECLARED_BY
from service.api.tools.callee import FUNCTIONS, Callee, Choice
from service.api.tools.client import CLIENT
from service.api.tools.hosted import HOSTED
from service.api.tools.read import Tools
from service.decoding import Json, ObjectKind, decode, decode_list
from service.errors import InvalidRequest, invalid_value, missing, not_served

MAX_ALLOWED = 128
"""The most tools that an `allowed_tools` may name."""

_MODES = ("none", "auto", "required")
_SPECIFIC = "Give 'function', 'custom', 'allowed_tools', or the type of a tool that 'tools' declares."
_NOT_RUN = "This service can't run it, so it can't be called; give a function or a custom tool."

_Name = Annotated[str, Meta(min_length=1, max_length=256)]


class Chosen(msgspec.Struct, frozen=True):
    """A choice that was read.

    `allowed` are the recipients that may be called, None for all tools'. `parallel_one` allows just one call, as a
    tool was chosen by its name. `echo` is the Response's `tool_choice`.
    """

    choice: Choice = "auto"
    allowed: frozenset[str] | None = None
    parallel_one: bool = False
    echo: str | Json = "auto"


class _Specific(msgspec.Struct, forbid_unknown_fields=True):
    """A custom tool of the caller, by its name."""

    type: Literal["function", "custom"]
    name: _Name
    namespace: _Name | None = None


class _Namespace(msgspec.Struct, forbid_unknown_fields=True):
    """All tools of a namespace."""

    type: Literal["namespace"]
    name: _Name


class _Hosted(msgspec.Struct):
    """A hosted tool; its other members are ignored."""

    type: str
    server_label: _Name | None = None
    name: _Name | None = None


class _Allowed(msgspec.Struct, forbid_unknown_fields=True):
    """The tools that may be called."""

    type: Literal["allowed_tools"]
    tools: msgspec.Raw = msgspec.Raw(b"[]")
    mode: Literal["none", "auto", "required"] = "auto"


def read_choice(raw: msgspec.Raw, tools: Tools) -> Chosen:
    """Read the JSON of `tool_choice`; null is auto.

    Raises InvalidRequest: for a tool that isn't among `tools`, for one that can't be called, and where a call is
    required though there is nothing to call.
    """
    sent = decode(raw, ObjectKind | str | None, "tool_choice")
    if sent is None:
        return Chosen()
    if isinstance(sent, str):
        if sent not in _MODES:
            expected = f"Give one of {', '.join(_MODES)}, or an object that names a tool."
            raise invalid_value("tool_choice", sent, expected)
        if sent == "required" and not tools.callees:
            raise _nothing_to_call("tool_choice", tools)
        return Chosen(sent, echo=sent)
    if sent.type is None:
        raise missing("tool_choice.type", _SPECIFIC)
    if sent.type == "allowed_tools":
        return _allowed_choice(decode(raw, _Allowed, "tool_choice"), tools)
    if sent.type not in ("function", "custom") and sent.type not in HOSTED:
        raise invalid_value("tool_choice.type", sent.type, _SPECIFIC)
    recipients, echo = _named_recipients(raw, sent.type, tools, "tool_choice", "Declare that tool in 'tools'.")
    if not recipients:
        raise not_served("tool_choice.type", sent.type, _NOT_RUN)
    return Chosen("required", frozenset(recipients), parallel_one=True, echo=echo)


def _allowed_choice(sent: _Allowed, tools: Tools) -> Chosen:
    """The choice among the named tools. Hosted ones may be named, and stay uncallable."""
    named = decode_list(sent.tools, MAX_ALLOWED, "tool_choice.tools")
    if not named:
        raise invalid_value("tool_choice.tools", "[]", "Name at least one tool.")
    allowed: set[str] = set()
    echo: list[Json] = []
    for place, raw in enumerate(named):
        recipients, shown = _one_allowed(raw, tools, f"tool_choice.tools[{place}]")
        allowed |= recipients
        echo.append(shown)
    if sent.mode == "required" and not allowed:
        raise _nothing_to_call("tool_choice.tools", tools)
    choice = sent.mode if allowed else "none"
    return Chosen(choice, frozenset(allowed), echo={"type": "allowed_tools", "mode": sent.mode, "tools": echo})


def _one_allowed(raw: msgspec.Raw, tools: Tools, where: str) -> tuple[set[str], Json]:
    """The recipients that one of the allowed tools stands for, and its echo."""
    kind = decode(raw, ObjectKind, where).type
    if kind is None:
        raise missing(f"{where}.type", "Give the type of a tool, such as 'function'.")
    if kind == "namespace":
        name = decode(raw, _Namespace, where).name
        inside = {callee.recipient for callee in tools.callees if (callee.namespace or FUNCTIONS) == name}
        if not inside:
            raise _undeclared_tool(where, "namespace", name)
        return inside, {"type": "namespace", "name": name}
    if kind not in ("function", "custom") and kind not in HOSTED:
        raise invalid_value(f"{where}.type", kind, "Give the type of a tool that 'tools' declares.")
    return _named_recipients(raw, kind, tools, where, "Declare that tool in 'tools', or leave it out.")


def _named_recipients(raw: msgspec.Raw, kind: str, tools: Tools, where: str, advice: str) -> tuple[set[str], Json]:
    """The recipients of the tool at `where`, none for a hosted one that can't run, and its echo."""
    if kind in ("function", "custom"):
        sent = decode(raw, _Specific, where)
        recipients = {_callee(sent, tools, where).recipient}
    else:
        sent = decode(raw, _Hosted, where)
        recipients = _of_type(sent, tools, where)
        if not recipients and kind not in tools.left_out:
            raise invalid_value(f"{where}.type", kind, advice)
    return recipients, {name: value for name, value in msgspec.structs.asdict(sent).items() if value is not None}


def _of_type(sent: _Hosted, tools: Tools, where: str) -> set[str]:
    """The recipients of the tools of a type: of those that the client runs, of a server, or of a tool that the model
    was trained with or that a server stands for. Raises InvalidRequest.
    """
    if sent.type == "mcp":
        return _of_server(sent, tools, where)
    if sent.type in CLIENT:
        return {callee.recipient for callee in tools.own if callee.kind == sent.type}
    kind = DECLARED_BY.get(sent.type, sent.type)
    return {each.recipient for each in tools.callees if each.hosted is not None and each.hosted.kind == kind}


def _of_server(sent: _Hosted, tools: Tools, where: str) -> set[str]:
    """The recipients of a server's tools, of all servers or of the one that is named. Raises InvalidRequest."""
    offered = [callee for callee in tools.callees if callee.hosted is not None and callee.hosted.kind == "mcp"]
    if offered and sent.server_label is not None:
        offered = [callee for callee in offered if callee.hosted and callee.hosted.server == sent.server_label]
        if not offered:
            expected = "'tools' declares no server with this label, or the server has no tools."
            raise invalid_value(f"{where}.server_label", sent.server_label, expected)
    found = {each.recipient for each in offered if sent.name is None or (each.hosted and each.hosted.tool == sent.name)}
    if offered and not found:
        raise _undeclared_tool(where, "tool of that server", sent.name or "")
    return found


def _callee(sent: _Specific, tools: Tools, where: str) -> Callee:
    """The tool of that name: in the namespace that is given, or else in `functions`, or else wherever it is the only
    one. The name may also be a recipient, such as `clock.sleep`.
    """
    callees = tools.own
    if sent.namespace is not None:
        found = [callee for callee in callees if callee.recipient == f"{sent.namespace}.{sent.name}"]
    else:
        exact = (sent.name, f"{FUNCTIONS}.{sent.name}")
        found = [callee for callee in callees if callee.recipient in exact]
        found = found or [callee for callee in callees if callee.name == sent.name]
    if not found and f"{sent.namespace or FUNCTIONS}.{sent.name}" in tools.deferred:
        raise invalid_value(f"{where}.name", sent.name, "It has 'defer_loading', and is not loaded yet.")
    if not found:
        raise _undeclared_tool(
            where, sent.type, sent.name if sent.namespace is None else f"{sent.namespace}.{sent.name}"
        )
    if len(found) > 1:
        raise invalid_value(
            f"{where}.name", sent.name, "Several namespaces have one of this name; give 'namespace' too."
        )
    if found[0].kind != sent.type:
        raise invalid_value(f"{where}.type", sent.type, f"'{sent.name}' is a tool of type '{found[0].kind}'.")
    return found[0]


def _undeclared_tool(where: str, kind: str, name: str) -> InvalidRequest:
    return invalid_value(f"{where}.name", name, f"'tools' declares no {kind} of this name.")


def _nothing_to_call(where: str, tools: Tools) -> InvalidRequest:
    advice = _NOT_RUN if tools.left_out else "Declare functions or custom tools in 'tools'."
    return invalid_value(where, "required", f"A call is required, and there is no tool to call. {advice}")
