"""The MCP servers that an operator names in a file, and those that requests may name themselves.

The file is TOML, a table for each server, by its label:

    [docs]
    url = "http://docs.internal:9000/mcp"
    description = "Our documentation."
    allowed_tools = ["search"]
    require_approval = "never"
    [docs.headers]
    Authorization = "Bearer …"

    [files]
    command = ["mcp-server-filesystem", "/srv/files"]
    [files.env]
    LOG_LEVEL = "error"

    [library]
    url = "http://library.internal:9000/mcp"
    type = "file_search"
    tool = "search"

A request names a server by its `server_label` alone; its own rules for tools and approval can only be stricter. A
server with a `type` stands for that hosted type of tool, by one of its tools, and is named by that type alone.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from pydantic import AfterValidator, Field

from service.api.tools.callee import FILE_SEARCH
from service.features.mcp.shapes import LABEL
from service.settings.core import CoreSettings
from service.settings.group import WholePath, Words, each_is, needs_package, shown_as
from service.settings.sources import environment
from service.settings.urls import is_url, mask_secrets

MAX_FILE_BYTES = 1 << 20
MAX_SERVERS = 64
MAX_ALLOW = 64

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
MAX_HEADER_CHARS = 8_192
"""How long the value of a header may be."""

_HEADER_VALUE = re.compile(rf"[\x20-\x7e\t]{{0,{MAX_HEADER_CHARS}}}")
RESERVED = re.compile(
    r"host|content-.*|connection|keep-alive|te|trailer|transfer-encoding|upgrade|proxy-.*|mcp-.*|accept.*|expect",
    re.IGNORECASE,
)
"""Headers that belong to the connection or the protocol."""

MAX_WORDS = 256
"""How many words a command has at most."""

INSTEAD = {
    "web_search": "HARMONIUM_SEARCH says what web_search searches",
    "code_interpreter": "HARMONIUM_SANDBOX runs code_interpreter",
    "mcp": "a server without a type is one of type mcp",
}
"""The remedies where a server can't stand for a type."""

INHERITED = ("PATH", "HOME", "LANG")
"""The variables of the service's own environment, which holds secrets, that programs get."""

Text = Annotated[str, Meta(max_length=4_096)]
Word = Annotated[str, Meta(max_length=8_192)]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


class OperatorServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server as its operator describes it: at a `url`, or a program that this service starts by a `command`, in the
    folder `cwd` and with the variables `env`. `allowed_tools` None are all. One with a `type` stands for that type of
    tool, by its own tool `tool`.
    """

    url: str | None = None
    command: list[Word] | None = None
    env: dict[str, Word] = {}
    cwd: str | None = None
    description: Text | None = None
    headers: dict[str, str] = {}
    allowed_tools: list[str] | None = None
    require_approval: Literal["always", "never"] | None = None
    """None is "always", as at OpenAI."""
    type: str | None = None
    tool: Annotated[str, Meta(min_length=1, max_length=256)] | None = None

    @property
    def address(self) -> str:
        """Its address: its URL, or its folder and command."""
        return self.url or "\0".join((self.cwd or "", *(self.command or ())))

    def among(self, variables: dict[str, str]) -> "OperatorServer":
        """The server, which as a program has these variables beside its own."""
        return self if self.command is None else msgspec.structs.replace(self, env=variables | self.env)


class Program(msgspec.Struct, frozen=True):
    """A server that is a program: its command, what it finds in its environment, and its folder. It holds secrets."""

    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None


class McpConnection(msgspec.Struct, frozen=True):
    """The way to reach a server: its label in a response, its URL, and the headers of each request; or the program that
    it is. It holds secrets.
    """

    label: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    trusted: bool = False
    """Whether the operator named it, so that it may have any address."""
    program: Program | None = None


class BadServers(ValueError):
    """The file of servers can't be used, and why."""


def read_servers(text: str) -> dict[str, OperatorServer]:
    """The servers of a file's text. Raises BadServers, which names the line or the server, and no value."""
    try:
        servers = msgspec.toml.decode(text, type=dict[str, OperatorServer])
    except msgspec.MsgspecError as error:
        raise BadServers(str(error)) from error
    if len(servers) > MAX_SERVERS:
        raise BadServers(f"it has {len(servers)} servers, at most {MAX_SERVERS} are possible")
    for label, server in servers.items():
        if not LABEL.fullmatch(label):
            raise BadServers(f"[{label[:80]}]: a label has 1 to 64 of the characters A-Z a-z 0-9 _ -")
        if (server.url is None) == (server.command is None):
            raise BadServers(f"[{label}]: give a url or a command, one of the two")
        if server.url is None:
            _check_program(label, server)
        else:
            _check_address(label, server, server.url)
        _check_type(label, server)
    _check_types(servers)
    return servers


def _check_type(label: str, server: OperatorServer) -> None:
    if server.type is None:
        if server.tool is not None:
            raise BadServers(f"[{label}]: tool is for a server with a type; others have allowed_tools")
        return
    if server.type != FILE_SEARCH:
        why = INSTEAD.get(server.type, "a server can provide no other tool")
        raise BadServers(f"[{label}]: type is {FILE_SEARCH!r}, or isn't there; {why}")
    if server.tool is None:
        raise BadServers(f"[{label}]: with a type, tool names the server's tool")
    if server.allowed_tools is not None or server.require_approval is not None:
        raise BadServers(
            f"[{label}]: a {server.type} has one tool, which nobody approves: leave allowed_tools and "
            "require_approval out"
        )


def _check_types(servers: dict[str, OperatorServer]) -> None:
    """One server at most stands for a type."""
    standing: dict[str, str] = {}
    for label, server in servers.items():
        if server.type is not None and (other := standing.setdefault(server.type, label)) != label:
            raise BadServers(f"[{label}]: [{other}] has the same type")


def _check_address(label: str, server: OperatorServer, url: str) -> None:
    if server.env or server.cwd is not None:
        raise BadServers(f"[{label}]: env and cwd are for a command")
    if not is_url(url):
        raise BadServers(f"[{label}]: url is no http:// or https:// URL without user, fragment and '..'")
    for name, value in server.headers.items():
        if not is_header(name, value):
            raise BadServers(f"[{label}.headers]: {name[:80]!r} can't be sent to a server")


def _check_program(label: str, server: OperatorServer) -> None:
    words = server.command or []
    if server.headers:
        raise BadServers(f"[{label}]: headers are for a url; a command has env")
    if not 1 <= len(words) <= MAX_WORDS or not words[0]:
        raise BadServers(f"[{label}]: a command has 1 to {MAX_WORDS} words, the first of which names a program")
    if any("\0" in word for word in (*words, *server.env.values(), server.cwd or "")):
        raise BadServers(f"[{label}]: no word of a command, value of env or folder has a NUL in it")
    if server.cwd is not None and not Path(server.cwd).is_absolute():
        raise BadServers(f"[{label}]: cwd is a folder's whole path, which begins with /")
    for name in server.env:
        if not _VARIABLE.fullmatch(name):
            raise BadServers(f"[{label}.env]: {name[:80]!r} is no name of a variable")


def is_header(name: str, value: str) -> bool:
    """Whether a header may be sent to a server on somebody's word."""
    return bool(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)) and not RESERVED.fullmatch(name)


def is_allowed(url: str, prefixes: Sequence[str]) -> bool:
    """Whether requests may name this URL: it begins with one of the prefixes, up to the end of a part of its path; `*`
    are all.
    """
    lowered = _lower(url)
    for prefix in prefixes:
        if prefix == "*":
            return True
        known = _lower(prefix).rstrip("/")
        if lowered == known or lowered.startswith((f"{known}/", f"{known}?")):
            return True
    return False


def _lower(url: str) -> str:
    """A URL whose scheme and host are in small letters, as they are the same in any."""
    scheme, _, rest = url.partition("://")
    end = next((place for place, letter in enumerate(rest) if letter in "/?"), len(rest))
    return f"{scheme.lower()}://{rest[:end].lower()}{rest[end:]}"


def trusted_connection(label: str, server: OperatorServer) -> McpConnection:
    """The connection to a server of the operator's."""
    if server.url is not None:
        return McpConnection(label, server.url, tuple(server.headers.items()), trusted=True)
    program = Program(tuple(server.command or ()), tuple(server.env.items()), server.cwd)
    return McpConnection(label, "", trusted=True, program=program)


def mark_of(connection: McpConnection) -> str:
    """The mark of a connection, which doesn't tell its secrets."""
    return blake2b(
        msgspec.json.encode([connection.url, connection.headers, connection.program]), digest_size=16
    ).hexdigest()


def address_mark(url: str) -> str:
    """The mark of a URL, whatever is sent there, which doesn't tell the URL."""
    return blake2b(url.encode(), digest_size=16).hexdigest()


def servers_in(path: Path) -> dict[str, OperatorServer]:
    """The MCP servers of a file; programs with what they have of the environment, too. Raises ValueError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path} has more than {MAX_FILE_BYTES} bytes")
        servers = read_servers(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, BadServers) as error:
        raise ValueError(f"{path}: {error}") from error
    own = environment(INHERITED)
    return {label: server.among(own) for label, server in servers.items()}


def _right_file(value: str) -> str:
    if value:
        servers_in(Path(value))
    return value


class McpSettings(CoreSettings):
    """MCP servers whose tools requests may use."""

    heading = "MCP servers"

    mcp_servers: Annotated[WholePath, needs_package("mcp", "mcp", unless=""), AfterValidator(_right_file)] = ""
    """File of the MCP servers that requests can name by `server_label`. Empty is none."""
    mcp_allow: Annotated[
        Words,
        needs_package("mcp", "mcp", unless=()),
        each_is(
            lambda text: text == "*" or is_url(text),
            "beginning of a URL; write https://host or https://host/path",
        ),
        shown_as(lambda urls: mask_secrets(",".join(urls))),
    ] = Field((), max_length=MAX_ALLOW)
    """Allowed beginnings of a request's `server_url`, comma-separated, such as https://mcp.example.com. `*` is any
    public address. Empty is none."""


GROUP = McpSettings
