"""A tool that the model may call: the address of a call, the format of its content, and the side that runs it."""

from typing import Literal

import msgspec

from service.errors import not_served

FUNCTIONS = "functions"
"""The namespace of tools that name none."""

FILE_SEARCH = "file_search"
MSEARCH = "msearch"
"""A search of files as OpenAI's own models know it: its namespace, which is also its type, and its tool."""


Kind = Literal["function", "custom", "tool_search", "shell", "local_shell", "apply_patch"]
"""The kinds of tools that a caller declares. All but `function` and `custom` have items of their own (client.py)."""

PLAIN: frozenset[Kind] = frozenset({"custom", "apply_patch"})
"""Kinds of tools whose calls are a text, unless that is wrapped, and no JSON."""


Choice = Literal["auto", "none", "required"]
Callers = list[Literal["direct", "programmatic"]] | None


HostedKind = Literal["mcp", "python", "browser", "file_search"]
"""The kinds of hosted tools: of an MCP server, the two that the model was trained with, and a search of files by an
operator's server.
"""


class Hosted(msgspec.Struct, frozen=True):
    """The runner of a tool that the service calls itself: an MCP server by its label, with its own name for the tool;
    or, for a tool that the model was trained with, the container that Python runs in, or the browser.

    A `repeatable` tool may be called again where nobody knows whether it was: it only reads, or a second call changes
    nothing more. `options` is JSON: the request's settings of a tool that isn't of type `mcp`. A call that needs
    `approval` is shown to the caller, who may approve it. `at` tells the address of a server from any other that
    could have its label by the time of the answer.
    """

    server: str
    tool: str
    repeatable: bool = False
    kind: HostedKind = "mcp"
    options: str = ""
    approval: bool = False
    at: str = ""


class Callee(msgspec.Struct, frozen=True):
    """A tool that the model may call: a function, or a custom tool, whose input is a text.

    `content` is the format that a call's content must match (grammar/tags.py), None where nothing is enforced.
    With `wrapped` the input of a custom tool stands in the content as the one member, `input`, of a JSON object. With
    `seals` its declaration wishes for arguments that are encrypted; its calls say that none is.
    The caller runs it, unless it is `hosted`.
    """

    name: str
    kind: Kind = "function"
    namespace: str | None = None
    content: str | None = None
    wrapped: bool = False
    seals: bool = False
    hosted: Hosted | None = None

    @property
    def recipient(self) -> str:
        """The recipient of its calls in Harmony."""
        if self.trained and self.namespace is None:
            return self.name
        return f"{self.namespace or FUNCTIONS}.{self.name}"

    @property
    def trained(self) -> bool:
        """Whether the model was trained with it, so that it knows how to call it."""
        return self.hosted is not None and self.hosted.kind in ("python", "browser")

    @property
    def awaits(self) -> bool:
        """Whether a call of it waits for the caller: for an output, or to be approved."""
        return self.hosted is None or self.hosted.approval

    @property
    def takes_json(self) -> bool:
        """Whether the content of a call is JSON, which its header says."""
        return self.wrapped or self.kind not in PLAIN


def check_callers(callers: Callers, where: str) -> None:
    """Raise InvalidRequest unless the model itself may call the tool at `where`."""
    if callers is not None and "direct" not in callers:
        raise not_served(f"{where}.allowed_callers", callers, "Leave it out, or add 'direct'.")
