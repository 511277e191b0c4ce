"""Tools that OpenAI runs, or that only its own models were trained on. This service runs only those of MCP servers;
the client runs some others (client.py).

The rest are accepted, since clients declare them by default. They are left out of the prompt, echoed without their
secrets, and named to the client. Never echo or log a client's credentials for somewhere else.
"""

import re
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from service.errors import not_allowed
from service.harmony.typescript import SchemaTooLarge, check_size

T = TypeVar("T")

HOSTED = frozenset(
    {
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use",
        "computer_use_preview",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    }
)
"""The types of tool that a request may declare, functions, custom tools and namespaces aside."""

SECRETS = frozenset({"authorization", "headers", "domain_secrets"})
"""Members that are secret in any place."""

_SECRETIVE = re.compile(r"token|secret|passw|credential|api[-_]?key|cookie|signature", re.IGNORECASE)
"""The names of other members that are secret, unless their value is a number."""

REDACTED = "<redacted>"

_ADDRESS = re.compile(r"([a-z]+)://(?:[^/?#]*@)?([A-Za-z0-9.-]+)(?=[:/?#]|$)")


def echo_of_hosted(tool: dict[str, Any], where: str) -> dict[str, Any]:
    """The echo of a hosted tool, made in place: secrets are null, and a server's address keeps only its host.

    Raises InvalidRequest for one that is nested too deep or too large, naming `where` it stands.
    """
    _redact(within_size(tool, where))
    return tool


def within_size(declared: T, where: str) -> T:
    """A schema or another declaration at `where`, unless it is nested too deep or too large. Raises InvalidRequest."""
    try:
        check_size(declared)
    except SchemaTooLarge as error:
        raise not_allowed(f"Invalid value for '{where}': {error}.", where) from None
    return declared


def is_secretive(name: str) -> bool:
    """Whether a name marks its value as secret."""
    return bool(_SECRETIVE.search(name)) or name.lower().endswith("key")


def _redact(value: object) -> None:
    if isinstance(value, list):
        for member in cast(list[object], value):
            _redact(member)
    elif isinstance(value, dict):
        members = cast(dict[str, object], value)
        for name, member in members.items():
            if name in SECRETS or (_SECRETIVE.search(name) and not isinstance(member, int | float)):
                members[name] = None
            elif name == "server_url":
                members[name] = _host_of(member)
            else:
                _redact(member)


def _host_of(address: object) -> str:
    """Scheme and host of a server's address: paths and queries hold keys, and so does the part before an @."""
    found = _ADDRESS.match(address) if isinstance(address, str) else None
    return f"{found[1]}://{found[2]}/{REDACTED}" if found else REDACTED


MAX_QUERIES = 8
MAX_QUERY_CHARS = 2_000
"""The most queries of a call that are searched for, and the characters of each; the rest of one is cut off."""


class _Asked(msgspec.Struct):
    queries: Annotated[list[str], Meta(max_length=MAX_QUERIES)]


def queries_of(arguments: str) -> list[str]:
    """The queries of a call, none where they can't be read."""
    try:
        return [query[:MAX_QUERY_CHARS] for query in msgspec.json.decode(arguments, type=_Asked).queries]
    except (msgspec.DecodeError, RecursionError):
        return []
