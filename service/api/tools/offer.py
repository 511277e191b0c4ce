"""The tools of servers that a request declares, as the model is shown them. Who asks the servers is the toolbox."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from service.api.tools.builtin import Reader
from service.api.tools.callee import Callee, Hosted, HostedKind
from service.harmony.typescript import Function, SchemaTooLarge, check_size

DESCRIPTION_CHARS = 4_096
"""The characters that the model is shown of a server's description of a tool."""

_UNSHOWN = re.compile(r"[^A-Za-z0-9_-]")
_SHOWN_CHARS = 64


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool of a server that the model may call: its name there, and its form in the prompt."""

    name: str
    description: str
    schema: dict[str, Any]
    repeatable: bool
    approval: bool = False


class McpOffer(msgspec.Struct, frozen=True):
    """The tools of a server that the model is shown, in the namespace of its label. `at` is as of Hosted."""

    label: str
    description: str
    tools: tuple[OfferedTool, ...]
    at: str = ""


class Routed(msgspec.Struct, frozen=True):
    """A hosted type of tool that an operator's server stands for: the `server`, by label, and that one's `tool`; its
    form in the prompt, in a namespace of the type's name; and the reader of its declaration. It only reads.
    """

    type: HostedKind
    server: str
    tool: str
    shown: Function
    read: Reader

    def callee(self, options: str) -> Callee:
        """The tool as the model calls it, with a request's options."""
        hosted = Hosted(self.server, self.tool, True, self.type, options)
        return Callee(self.shown.name, namespace=self.type, hosted=hosted)


def callees(offer: McpOffer) -> Iterator[tuple[Callee, Function]]:
    """The tools of a server as the model calls them, and as it is shown them.

    Its names may have characters that no recipient has; these become `_`, and a name that comes twice gets a number.
    """
    taken: set[str] = set()
    for tool in offer.tools:
        shown = _name(tool.name, taken)
        taken.add(shown)
        hosted = Hosted(offer.label, tool.name, tool.repeatable, approval=tool.approval, at=offer.at)
        callee = Callee(shown, "function", offer.label, hosted=hosted)
        yield callee, Function(shown, tool.description[:DESCRIPTION_CHARS], _parameters(tool.schema))


def _name(name: str, taken: set[str]) -> str:
    shown = _UNSHOWN.sub("_", name)[:_SHOWN_CHARS] or "_"
    number = 1
    unique = shown
    while unique in taken:
        number += 1
        unique = f"{shown[: _SHOWN_CHARS - 5]}_{number}"
    return unique


def _parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as far as it can be shown."""
    try:
        check_size(schema)
    except SchemaTooLarge:
        return {"type": "object"}
    return schema
