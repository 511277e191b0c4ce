"""The `tools` of a request: as the prompt shows them, as they are called, and as the Response echoes them.

Functions and custom tools are the caller's to run. They stand in Harmony namespaces: those that a request groups
itself, and `functions` for all others. Hosted tools are echoed and left out of the prompt.

Tools repeat from request to request, so lists that were read once are kept, within named bounds.
"""

import re
from collections.abc import Generator, Sequence
from typing import Any, Literal

import msgspec

from service.api.decoding import decode, decode_list, decoder_of
from service.api.tools.callee import FUNCTIONS, Callee
from service.api.tools.custom import DESCRIPTION, CustomTool, read_custom
from service.api.tools.hosted import HOSTED, echo_of_hosted
from service.errors import InvalidRequest, invalid_value, missing, unsupported
from service.grammar.schemas import held_steps
from service.grammar.tags import schema_content
from service.harmony.typescript import Function, SchemaTooLarge, check_size, namespace_steps

TOOL_LISTS_CACHED = 64
CACHED_LIST_BYTES = 65_536
"""Longer lists are read anew each time, so the cache holds at most 4 MiB of them."""

MAX_GRAMMARS = 16
"""The most tools under a grammar or a regex: reading one takes some 15 ms, in steps."""

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a tool, or a namespace, may be named."""

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of the arguments of a function that takes none."""

ANY_PARAMETERS: dict[str, Any] = {"type": "object"}
"""The schema of a function's arguments, where an empty one says nothing of them."""

_SERVED = "Give 'function', 'custom', 'namespace', or one of OpenAI's hosted tools, which are left out of the prompt."


class _Kind(msgspec.Struct):
    type: str | None = None


class FunctionTool(msgspec.Struct, forbid_unknown_fields=True):
    """A function that the caller runs, as sent."""

    type: str
    name: str
    description: DESCRIPTION | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: Any = None
    defer_loading: bool | None = None
    async_: bool | None = msgspec.field(default=None, name="async")
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None


class NamespaceTool(msgspec.Struct, forbid_unknown_fields=True):
    """Tools that are called by a common prefix, as sent."""

    type: str
    name: str
    description: DESCRIPTION | None = None
    tools: msgspec.Raw = msgspec.Raw(b"[]")


_KIND = decoder_of(_Kind)
_FUNCTION = decoder_of(FunctionTool)
_CUSTOM = decoder_of(CustomTool)
_NAMESPACE = decoder_of(NamespaceTool)
_ANY_OBJECT = decoder_of(dict[str, Any])


class Tools(msgspec.Struct, frozen=True):
    """The tools of a request.

    `callees` are those that the caller runs, `namespaces` those that they stand in, `section` their section of the
    prompt ("" for none). `echo` is for the Response. `left_out` are the types of those that have no back end here, so
    that the prompt doesn't show them.
    """

    section: str = ""
    echo: tuple[dict[str, Any], ...] = ()
    callees: tuple[Callee, ...] = ()
    left_out: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


List = tuple[str, bytes]
"""Where a list of tools stands in the request, and its JSON."""


def read_tools(
    raw: msgspec.Raw, *, max_tools: int, max_bytes: int, added: Sequence[tuple[str, msgspec.Raw]] = ()
) -> Generator[None, None, Tools]:
    """Read the JSON of `tools`, yielding now and then, and of the lists `added` to it, each with its place.

    An added tool takes the place of an earlier one of its name, and isn't echoed: the item that brought it is listed.
    All lists together have at most `max_bytes`, and `max_tools` tools. Raises InvalidRequest, naming the tool by its
    place.
    """
    lists: tuple[List, ...] = (("tools", bytes(raw)), *((where, bytes(more)) for where, more in added))
    size = sum(len(sent) for _, sent in lists)
    if size > max_bytes:
        raise InvalidRequest(
            f"'tools' has {size} bytes, at most {max_bytes} are allowed. Declare fewer or simpler functions.",
            code="invalid_value",
            param="tools",
        )
    known = _KNOWN.pop((lists, max_tools), None)
    if known is None:
        known = yield from _read(lists, max_tools)
    if size <= CACHED_LIST_BYTES:
        _KNOWN[lists, max_tools] = known
        if len(_KNOWN) > TOOL_LISTS_CACHED:
            del _KNOWN[next(iter(_KNOWN))]
    return known


_KNOWN: dict[tuple[tuple[List, ...], int], Tools] = {}
"""What was read of lists, the one that was used longest ago first."""


def _read(lists: tuple[List, ...], max_tools: int) -> Generator[None, None, Tools]:
    reading = _Reading(max_tools)
    echo: tuple[dict[str, Any], ...] = ()
    for where, sent in lists:
        read = yield from reading.list(sent, where)
        echo = read if where == "tools" else echo
    return (yield from reading.tools(echo))


class _Reading:
    """The tools that have been read so far, by namespace and name."""

    def __init__(self, max_tools: int) -> None:
        self._max_tools = max_tools
        self._namespaces: dict[str, dict[str, tuple[Callee, Function]]] = {}
        self._about: dict[str, str] = {}
        self._left_out: dict[str, None] = {}
        self._read = 0
        self._grammars = 0
        self._here: set[str] = set()

    def list(self, sent: bytes | msgspec.Raw, where: str) -> Generator[None, None, tuple[dict[str, Any], ...]]:
        """Read a list that stands at `where`; returns its echo."""
        self._here = set()
        echo: list[dict[str, Any]] = []
        for place, tool in enumerate(decode_list(sent, self._max_tools, where)):
            echo.append((yield from self._tool(tool, f"{where}[{place}]")))
        return tuple(echo)

    def tools(self, echo: tuple[dict[str, Any], ...]) -> Generator[None, None, Tools]:
        """All that was read, its namespaces sorted by name as openai-harmony sorts them."""
        order = sorted(self._namespaces)
        sections: list[str] = []
        for name in order:
            shown = [function for _, function in self._namespaces[name].values()]
            sections.append((yield from namespace_steps(name, shown, self._about.get(name) or None)))
        callees = tuple(callee for name in order for callee, _ in self._namespaces[name].values())
        return Tools(
            section="\n\n".join(sections),
            echo=echo,
            callees=callees,
            left_out=tuple(self._left_out),
            namespaces=tuple(order),
        )

    def _tool(self, raw: msgspec.Raw, where: str) -> Generator[None, None, dict[str, Any]]:
        """Read a tool of any type; returns its echo."""
        kind = decode(raw, _KIND, where).type
        if kind is None:
            raise missing(f"{where}.type", _SERVED)
        if kind == "namespace":
            return (yield from self._namespace(raw, where))
        self._count()
        if kind not in HOSTED:
            yield
            return (yield from self._callable(raw, kind, where, None))
        self._left_out[kind] = None
        return echo_of_hosted(decode(raw, _ANY_OBJECT, where), where)

    def _namespace(self, raw: msgspec.Raw, where: str) -> Generator[None, None, dict[str, Any]]:
        sent = decode(raw, _NAMESPACE, where)
        _check_name(sent.name, where, "namespace")
        if not self._about.get(sent.name):
            self._about[sent.name] = sent.description or ""
        echo: list[dict[str, Any]] = []
        for place, tool in enumerate(decode_list(sent.tools, self._max_tools, f"{where}.tools")):
            at = f"{where}.tools[{place}]"
            kind = decode(tool, _KIND, at).type
            if kind is None:
                raise missing(f"{at}.type", "A namespace holds tools of type 'function' and 'custom'.")
            self._count()
            echo.append((yield from self._callable(tool, kind, at, sent.name)))
            yield
        return {"type": "namespace", "name": sent.name, "description": sent.description, "tools": echo}

    def _callable(
        self, raw: msgspec.Raw, kind: str, where: str, namespace: str | None
    ) -> Generator[None, None, dict[str, Any]]:
        """Read a tool that the caller runs. One in a namespace called `functions` is like one in none."""
        inside = None if namespace == FUNCTIONS else namespace
        if kind == "function":
            tool = decode(raw, _FUNCTION, where)
            _check(tool, where)
            callee, shown, echo = yield from _function(tool, where, inside)
        elif kind == "custom":
            tool = decode(raw, _CUSTOM, where)
            _check(tool, where)
            callee, shown, echo = yield from read_custom(tool, where, inside)
            self._grammars += not callee.wrapped
            if self._grammars > MAX_GRAMMARS:
                raise invalid_value(f"{where}.format", "a grammar", f"At most {MAX_GRAMMARS} tools may have one.")
        else:
            advice = _SERVED if namespace is None else "A namespace holds tools of type 'function' and 'custom'."
            raise invalid_value(f"{where}.type", kind, advice)
        if callee.recipient in self._here:
            raise invalid_value(
                f"{where}.name", tool.name, "Two tools have the same name. Give each one a name of its own."
            )
        self._here.add(callee.recipient)
        self._namespaces.setdefault(namespace or FUNCTIONS, {})[tool.name] = (callee, shown)
        return echo | _given(tool)

    def _count(self) -> None:
        self._read += 1
        if self._read > self._max_tools:
            raise InvalidRequest(
                f"Too many tools: at most {self._max_tools} are allowed, those in namespaces included.",
                code="invalid_value",
                param="tools",
            )


def _function(
    tool: FunctionTool, where: str, namespace: str | None
) -> Generator[None, None, tuple[Callee, Function, dict[str, Any]]]:
    """The function as it is called, as the model sees it, and as it is echoed."""
    try:
        check_size(tool.parameters)
    except SchemaTooLarge as error:
        param = f"{where}.parameters"
        raise InvalidRequest(f"Invalid value for '{param}': {error}.", code="invalid_value", param=param) from None
    content = yield from _arguments(tool, where)
    echo: dict[str, Any] = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": content is not None,
    }
    callee = Callee(tool.name, "function", namespace, content)
    return callee, Function(tool.name, tool.description or "", tool.parameters), echo


def _arguments(tool: FunctionTool, where: str) -> Generator[None, None, str | None]:
    """What the arguments of a call must match. A schema that can't be held is refused only where `strict` asks for it:
    who doesn't mention it gets what can be had.
    """
    if tool.strict is False:
        return None
    schema = NO_PARAMETERS if tool.parameters is None else tool.parameters or ANY_PARAMETERS
    try:
        return schema_content((yield from held_steps(schema, f"{where}.parameters")))
    except InvalidRequest:
        if tool.strict:
            raise
        return None


def _check(tool: FunctionTool | CustomTool, where: str) -> None:
    _check_name(tool.name, where, "tool")
    if tool.async_:
        raise unsupported(f"{where}.async", "true", "Leave it out.")
    if tool.allowed_callers is not None and "direct" not in tool.allowed_callers:
        raise unsupported(f"{where}.allowed_callers", tool.allowed_callers, "Leave it out, or add 'direct'.")


def _check_name(name: str, where: str, what: str) -> None:
    if not TOOL_NAME.fullmatch(name):
        expected = f"A {what}'s name has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -."
        raise invalid_value(f"{where}.name", name, expected)


def _given(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    """Those members that an echo has only where they were given."""
    given = {"defer_loading": tool.defer_loading, "async": tool.async_, "allowed_callers": tool.allowed_callers}
    if isinstance(tool, FunctionTool):
        given["output_schema"] = tool.output_schema
    return {name: value for name, value in given.items() if value is not None}
