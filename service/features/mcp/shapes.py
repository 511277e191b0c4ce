"""Tools of type `mcp`: servers of tools that a request declares, and the tools that the model is shown of each.

The toolbox finds the server of a label, and its list, before tools are read (tools/toolbox.py). This file reads
declarations, and picks the listed tools that they let through. Never keep credentials: they are in `headers` and
`authorization` alone, which go to the server and nowhere else.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.api.tools.callee import FUNCTIONS, Callers, check_callers
from service.api.tools.offer import DESCRIPTION_CHARS
from service.decoding import ObjectKind, decode, decode_list
from service.errors import invalid_value, not_allowed

MAX_SERVERS = 16
"""The most servers of one request."""

MAX_HEADERS = 32
MAX_NAMES = 256

LABEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The legal labels of a server: its namespace in Harmony has the same name."""

RESERVED_LABELS = frozenset({FUNCTIONS, "browser", "python", "container", "assistant", "user", "system", "developer"})
"""Labels that are refused: a label is a namespace in Harmony, which uses these names itself."""

_NAMES = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=MAX_NAMES)]
_INSTRUCTIONS_CHARS = 1_000
"""The characters that the model is shown of a server's description of itself."""


class ToolFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some of a server's tools: those of these names, those that only read, or where both are given those of both."""

    tool_names: _NAMES | None = None
    read_only: bool | None = None

    def matches(self, name: str, *, reads: bool) -> bool:
        """Whether a tool is one of them."""
        named = self.tool_names is None or name in self.tool_names
        return named and (self.read_only is None or reads is self.read_only)


class _Approvals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    always: ToolFilter | None = None
    never: ToolFilter | None = None


class _McpTool(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["mcp"]
    server_label: str
    server_url: Annotated[str, Meta(max_length=2_048)] | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    server_description: Annotated[str, Meta(max_length=DESCRIPTION_CHARS)] | None = None
    headers: Annotated[dict[str, str], Meta(max_length=MAX_HEADERS)] | None = None
    authorization: Annotated[str, Meta(max_length=8_192)] | None = None
    allowed_tools: _NAMES | ToolFilter | None = None
    require_approval: Literal["always", "never"] | _Approvals | None = None
    defer_loading: bool | None = None
    allowed_callers: Callers = None


class McpDeclaration(msgspec.Struct, frozen=True):
    """A server that a request declares, at a place of it. Without a `url` it is one of the operator's, by its label.

    `elsewhere` says that only OpenAI can reach it, by a connector or a tunnel. It holds secrets.
    """

    label: str
    where: str
    url: str | None
    elsewhere: bool
    description: str | None
    headers: tuple[tuple[str, str], ...]
    allowed: ToolFilter
    approval: "Approval"
    asks: bool
    """Whether the request says anything of approvals."""


class Approval(msgspec.Struct, frozen=True):
    """The tools of a server that somebody has to approve before they are called: all but those in `never`, of which
    those in `always` need it all the same.
    """

    never: ToolFilter | None = None
    always: ToolFilter | None = None

    def needed(self, name: str, *, reads: bool) -> bool:
        """Whether a call of this tool has to be approved."""
        if self.always is not None and self.always.matches(name, reads=reads):
            return True
        return self.never is None or not self.never.matches(name, reads=reads)


EVERY_TOOL = ToolFilter()
_NEVER = Approval(never=EVERY_TOOL)


def declarations(tools: msgspec.Raw, max_tools: int) -> list[McpDeclaration]:
    """The servers that the `tools` of a request declare. Raises InvalidRequest, naming the tool by its place."""
    if b"mcp" not in bytes(tools):
        return []
    found = list(_declarations(tools, max_tools))
    if len(found) > MAX_SERVERS:
        raise not_allowed(f"Too many MCP servers: {len(found)}, at most {MAX_SERVERS} are possible.", "tools")
    labels: set[str] = set()
    for each in found:
        if each.label in labels:
            raise invalid_value(f"{each.where}.server_label", each.label, "Two servers have the same label.")
        labels.add(each.label)
    return found


def declared_types(tools: msgspec.Raw, types: Iterable[str], max_tools: int) -> list[str]:
    """Those of some types of tool that the `tools` of a request declare. Raises InvalidRequest."""
    likely = [each for each in types if each.encode() in bytes(tools)]
    if not likely:
        return []
    kinds = {
        decode(raw, ObjectKind, f"tools[{n}]").type for n, raw in enumerate(decode_list(tools, max_tools, "tools"))
    }
    return [each for each in likely if each in kinds]


def _declarations(tools: msgspec.Raw, max_tools: int) -> Iterator[McpDeclaration]:
    for place, raw in enumerate(decode_list(tools, max_tools, "tools")):
        where = f"tools[{place}]"
        if decode(raw, ObjectKind, where).type == "mcp":
            yield _declaration(decode(raw, _McpTool, where), where)


def _declaration(sent: _McpTool, where: str) -> McpDeclaration:
    label = sent.server_label
    if not LABEL.fullmatch(label):
        expected = "A label has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -."
        raise invalid_value(f"{where}.server_label", label, expected)
    if label in RESERVED_LABELS:
        raise invalid_value(
            f"{where}.server_label", label, "The model uses this name for something else. Choose another."
        )
    if sum(each is not None for each in (sent.server_url, sent.connector_id, sent.tunnel_id)) > 1:
        raise invalid_value(where, label, "Give one of server_url, connector_id and tunnel_id.")
    check_callers(sent.allowed_callers, where)
    allowed = sent.allowed_tools
    return McpDeclaration(
        label=label,
        where=where,
        url=sent.server_url,
        elsewhere=sent.connector_id is not None or sent.tunnel_id is not None,
        description=sent.server_description,
        headers=_headers(sent, where),
        allowed=ToolFilter(allowed) if isinstance(allowed, list) else allowed or EVERY_TOOL,
        approval=_approval(sent.require_approval),
        asks=sent.require_approval is not None,
    )


def _headers(sent: _McpTool, where: str) -> tuple[tuple[str, str], ...]:
    headers = dict(sent.headers or {})
    if sent.authorization is not None:
        if any(name.lower() == "authorization" for name in headers):
            raise invalid_value(f"{where}.authorization", "given with headers.Authorization", "Send one of the two.")
        headers["Authorization"] = f"Bearer {sent.authorization}"
    return tuple(headers.items())


def _approval(sent: str | _Approvals | None) -> Approval:
    if sent == "never":
        return _NEVER
    return Approval(sent.never, sent.always) if isinstance(sent, _Approvals) else Approval()


def description_of(said: str | None, instructions: str) -> str:
    """The description of a server: the request's or the operator's, else its own, a stranger's words cut short."""
    return said if said is not None else instructions[:_INSTRUCTIONS_CHARS]
