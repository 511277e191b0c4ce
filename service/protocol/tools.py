"""The `tools` parameter: function tools, as the prompt shows them and as the Response echoes them.

Tools repeat from request to request, so a list that was read once is kept, within named bounds.
"""

import re
from collections.abc import Generator
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.protocol.decoding import decode, decode_list, decoder_of
from service.protocol.errors import InvalidRequest, invalid_value, missing, unsupported
from service.protocol.steps import in_one_go
from service.protocol.typescript import Function, SchemaTooLarge, namespace_steps

TOOL_LISTS_CACHED = 64
CACHED_LIST_BYTES = 65_536
"""Longer lists are read anew each time, so the cache holds at most 4 MiB of them."""

FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Kind(msgspec.Struct):
    type: str | None = None


class FunctionTool(msgspec.Struct, forbid_unknown_fields=True):
    """A function that the caller runs, as sent and as echoed."""

    type: str
    name: str
    description: Annotated[str, Meta(max_length=1_048_576)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = True
    output_schema: Any = None
    defer_loading: bool | None = None
    async_: bool | None = msgspec.field(default=None, name="async")


_KIND = decoder_of(_Kind)
_FUNCTION = decoder_of(FunctionTool)


class Tools(msgspec.Struct, frozen=True):
    """The tools of a request: their names, their section of the prompt ("" for none), and the Response's echo."""

    names: frozenset[str] = frozenset()
    section: str = ""
    echo: tuple[dict[str, Any], ...] = ()


def read_tools(raw: msgspec.Raw, *, max_tools: int, max_bytes: int) -> Generator[None, None, Tools]:
    """Read the JSON of `tools`, at most `max_bytes` of it, yielding now and then.

    Raises InvalidRequest, naming the tool by its place.
    """
    sent = bytes(raw)
    if len(sent) > max_bytes:
        raise InvalidRequest(
            f"'tools' has {len(sent)} bytes, at most {max_bytes} are allowed. Declare fewer or simpler functions.",
            code="invalid_value",
            param="tools",
        )
    if len(sent) <= CACHED_LIST_BYTES:
        return _read_cached(sent, max_tools)
    return (yield from _read(sent, max_tools))


def _read(raw: bytes, max_tools: int) -> Generator[None, None, Tools]:
    tools = decode_list(raw, max_tools, "tools")
    if not tools:
        return Tools()
    read: list[FunctionTool] = []
    for place, tool in enumerate(tools):
        read.append(_function(tool, f"tools[{place}]"))
        yield
    names = frozenset(tool.name for tool in read)
    if len(names) < len(read):
        raise InvalidRequest(
            "Two tools have the same name. Give each function a name of its own.",
            code="invalid_value",
            param="tools",
        )
    functions = [Function(tool.name, tool.description or "", tool.parameters) for tool in read]
    try:
        section = yield from namespace_steps("functions", functions)
    except SchemaTooLarge as error:
        raise InvalidRequest(f"Invalid tools: {error}.", code="invalid_value", param="tools") from None
    return Tools(names, section, tuple(_echo(tool) for tool in read))


@lru_cache(maxsize=TOOL_LISTS_CACHED)
def _read_cached(raw: bytes, max_tools: int) -> Tools:
    return in_one_go(_read(raw, max_tools))


def _function(raw: msgspec.Raw, where: str) -> FunctionTool:
    kind = decode(raw, _KIND, where).type
    if kind is None:
        raise missing(f"{where}.type", "This release serves tools of type 'function'.")
    if kind != "function":
        raise unsupported(f"{where}.type", kind, "This release serves tools of type 'function'.")
    tool = decode(raw, _FUNCTION, where)
    if not FUNCTION_NAME.fullmatch(tool.name):
        raise invalid_value(
            f"{where}.name",
            tool.name,
            "A function's name has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -.",
        )
    for name, value in (("defer_loading", tool.defer_loading), ("async", tool.async_)):
        if value:
            raise unsupported(f"{where}.{name}", "true", "Leave it out.")
    return tool


def _echo(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
