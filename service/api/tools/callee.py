"""A tool that the model may call: how a call of it is addressed, what its content must match, and who runs it."""

from typing import Literal

import msgspec

FUNCTIONS = "functions"
"""The namespace of tools that name none."""

FILE_SEARCH = "file_search"
MSEARCH = "msearch"
"""A search of files: its namespace, which is its type too, and its tool, as OpenAI's own models know it."""


Kind = Literal["function", "custom", "tool_search", "shell", "local_shell", "apply_patch"]
"""What the caller declared a tool as. Each but `function` and `custom` has items of its own (client.py)."""

PLAIN: frozenset[Kind] = frozenset({"custom", "apply_patch"})
"""Tools whose calls are a text, unless that is wrapped, and no JSON."""


Choice = Literal["auto", "none", "required"]


HostedKind = Literal["mcp", "python", "browser", "file_search"]
"""What runs a tool: an MCP server, one of the two that the model was trained with, or an operator's server that stands
for a search of files.
"""


class Hosted(msgspec.Struct, frozen=True):
    """Who runs a tool that the service calls itself: the MCP server with a label, under its own name for the tool; or,
    of a tool that the model was trained with, the container that Python runs in, or the browser.

    One that is `repeatable` may be called again where nobody knows whether it was: it only reads, or a second call
    changes nothing more. `options` is JSON: what the request says of a tool that is none of type `mcp`. Where it
    needs `approval`, a call of it is shown to the caller, who may approve it. `at` tells the address of a server from
    any other that could have its label by the time of the answer.
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
    With `wrapped` the input of a custom tool stands in the content as the one member, `input`, of a JSON object.
    The caller runs it, unless it is `hosted`.
    """

    name: str
    kind: Kind = "function"
    namespace: str | None = None
    content: str | None = None
    wrapped: bool = False
    hosted: Hosted | None = None

    @property
    def recipient(self) -> str:
        """Whom a call of it is addressed to in Harmony."""
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
