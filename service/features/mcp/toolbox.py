"""The offers of a request's MCP servers, and the calls of a response. It decides which servers may be asked, and how.

    declarations ─▶ discover ─▶ offers, lists, connections ─▶ ToolRun ─▶ sessions

Lists are cached for minutes, for each tenant and its credentials apart: a tenant may see a list that another may not.
Sessions are never shared: each belongs to one response and ends with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any

import msgspec

from service.api.outcome import HostedCall, Outcome, failed_outcome
from service.api.tools.callee import FILE_SEARCH
from service.api.tools.offer import McpOffer, OfferedTool, Routed
from service.errors import ApiError, invalid_value
from service.features.file_search import tool as file_search
from service.features.mcp.settings import (
    McpConnection,
    OperatorServer,
    address_mark,
    is_allowed,
    is_header,
    mark_of,
    trusted_connection,
)
from service.features.mcp.shapes import (
    Approval,
    McpDeclaration,
    ToolFilter,
    declarations,
    declared_types,
    description_of,
)
from service.settings.urls import is_url
from service.tools.port import Tool, ToolCatalog, ToolFailure, ToolListing, ToolServer, ToolUnreachable

LIST_SECONDS = 300.0
"""The time for which a server's list is cached."""

LISTS_CACHED = 64
"""The most lists that a process caches: at most 16 MiB of them (ToolLimits.list_bytes)."""

_CONNECTIONS = msgspec.json.Decoder(list[McpConnection])
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])

Opener = Callable[[McpConnection, str], ToolServer]
"""Opens a session with a server for a tenant; it connects at its first request."""


def no_server(connection: McpConnection, tenant: str) -> ToolServer:
    """Raise Unreachable, for a process that may ask no server: another process planned the response that wants one."""
    raise ToolUnreachable(f"This process can't use MCP servers such as '{connection.label}'.")


class _Kept(msgspec.Struct):
    """A list of tools, and the time until which it counts."""

    until: float = 0.0
    listing: ToolListing = ToolListing(())


class Toolbox(Tool):
    """The servers that this service may ask."""

    kinds = ("mcp", FILE_SEARCH)

    def __init__(
        self,
        servers: Mapping[str, OperatorServer],
        allow: Sequence[str],
        open_server: Opener,
        *,
        allowing: str,
    ) -> None:
        """`servers` are the operator's. `allow` are the prefixes of URLs that requests may name, and `allowing` is the
        name of the setting that has them.
        """
        self._servers = {label: server for label, server in servers.items() if server.type is None}
        self._stand_ins = {server.type: (label, server) for label, server in servers.items() if server.type is not None}
        """The servers that stand for a type of tool, by the type."""
        self.types = (*(("mcp",) if self._servers or allow else ()), *self._stand_ins)
        self.declarations = [{"type": "mcp", "server_label": label} for label in self._servers]
        self._allow = tuple(allow)
        self._open = open_server
        self._allowing = allowing
        self._kept = lru_cache(LISTS_CACHED)(lambda *_: _Kept())
        """The cached list for a tenant of the connection with this mark, to be filled in."""

    async def look_up(
        self, tenant: str, tools: msgspec.Raw, max_tools: int, may_begin: Callable[[], Awaitable[None]]
    ) -> ToolCatalog:
        """See the port."""
        types = declared_types(tools, self._stand_ins.keys(), max_tools)
        declared = declarations(tools, max_tools) if "mcp" in self.types else ()
        if not declared and not types:
            return ToolCatalog()
        await may_begin()
        return await self.discover(tenant, declared, types)

    async def discover(self, tenant: str, declared: Sequence[McpDeclaration], types: Sequence[str] = ()) -> ToolCatalog:
        """Ask the servers that a request declares for their tools, and those that stand for these `types`. Servers that
        were not asked lately are asked side by side.

        Servers that only OpenAI reaches offer nothing. Raises InvalidRequest for one that may not be asked, and
        ApiError 424 where one gives no list, or not the tool by which it stands for a type.
        """
        reached = [(each, self._connection(each)) for each in declared if not each.elsewhere]
        stand_ins = [self._stand_ins[each] for each in types]
        wanted = [*(to for _, to in reached), *(trusted_connection(*each) for each in stand_ins)]
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._listing(tenant, to)) for to in wanted]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        listings = (each.result() for each in asked)
        offers, lists = list[McpOffer](), list[tuple[str, str, bytes]]()
        for (each, to), listing in zip(reached, listings, strict=False):
            offers.append(self._offer(each, listing))
            lists.append((each.label, mark_of(to), _show(offers[-1], listing)))
        routed = tuple(_route(*each, listing) for each, listing in zip(stand_ins, listings, strict=True))
        named = [to for each, to in reached if each.url is not None]
        return ToolCatalog(tuple(offers), tuple(lists), msgspec.json.encode(named) if named else b"", routed)

    def run(self, tenant: str, connections: bytes = b"") -> "ToolRun":
        """The runner of one response's calls. `connections` are those of its request's catalog."""
        reached = {("mcp", label): trusted_connection(label, server) for label, server in self._servers.items()}
        reached |= {("mcp", each.label): each for each in _CONNECTIONS.decode(connections or "[]")}
        reached |= {
            (type, label): trusted_connection(label, server) for type, (label, server) in self._stand_ins.items()
        }
        return ToolRun(reached, lambda connection: self._open(connection, tenant))

    def _connection(self, declared: McpDeclaration) -> McpConnection:
        """The connection to a server. Raises InvalidRequest."""
        where, url = declared.where, declared.url
        server = self._servers.get(declared.label)
        if url is None:
            if server is None:
                known = ", ".join(sorted(self._servers)) or "none"
                raise invalid_value(
                    f"{where}.server_label",
                    declared.label,
                    f"This service has no server with this label; send a server_url. Its own are: {known}.",
                )
            if declared.headers:
                raise invalid_value(
                    f"{where}.headers",
                    "given",
                    "The operator configures this for the service's own servers. Leave it out.",
                )
            return trusted_connection(declared.label, server)
        if not is_url(url):
            raise invalid_value(f"{where}.server_url", url, "Give an http:// or https:// URL without a user and '..'.")
        if not is_allowed(url, self._allow):
            raise invalid_value(
                f"{where}.server_url",
                url,
                f"This service may not connect to it; the operator can allow it with {self._allowing}.",
            )
        for name, value in declared.headers:
            if not is_header(name, value):
                raise invalid_value(f"{where}.headers", name, "It can't be sent to a server. Leave it out.")
        listed = is_allowed(url, [prefix for prefix in self._allow if prefix != "*"])
        return McpConnection(declared.label, url, declared.headers, trusted=listed)

    async def _listing(self, tenant: str, connection: McpConnection) -> ToolListing:
        kept, now = self._kept(tenant, mark_of(connection)), monotonic()
        if kept.until > now:
            return kept.listing
        session = self._open(connection, tenant)
        try:
            listing = await session.list_tools()
        except ToolFailure as failure:
            raise _no_list(connection.label, str(failure)) from None
        finally:
            await session.close()
        kept.until, kept.listing = now + LIST_SECONDS, listing
        return listing

    def _offer(self, declared: McpDeclaration, listing: ToolListing) -> McpOffer:
        """The tools that both the operator and the request let through."""
        server = self._servers.get(declared.label) if declared.url is None else None
        own = ToolFilter(None if server is None else server.allowed_tools)
        approval = declared.approval if server is None else _stricter(server, declared)
        tools: list[OfferedTool] = []
        for tool in listing.tools:
            if all(each.matches(tool.name, reads=tool.reads) for each in (own, declared.allowed)):
                asks = approval.needed(tool.name, reads=tool.reads)
                tools.append(OfferedTool(tool.name, tool.description, tool.schema, tool.repeatable, asks))
        said = declared.description if server is None else declared.description or server.description
        at = address_mark(server.address if server is not None else declared.url or "")
        return McpOffer(declared.label, description_of(said, listing.instructions), tuple(tools), at)


def _stricter(server: OperatorServer, declared: McpDeclaration) -> Approval:
    """The operator's rules of approval, which a request can only make stricter."""
    if server.require_approval != "never":
        return Approval()
    return declared.approval if declared.asks else Approval(never=ToolFilter())


def _route(label: str, server: OperatorServer, listing: ToolListing) -> Routed:
    """The type of tool that a server stands for. Raises ApiError 424 where the server has no fitting tool."""
    tool = next((each for each in listing.tools if each.name == server.tool), None)
    if tool is None:
        raise _no_list(label, f"It has no tool '{server.tool}', which should provide {server.type}.")
    try:
        return file_search.route(label, tool, server.description)
    except ValueError as error:
        raise _no_list(label, str(error)) from None


def _show(offer: McpOffer, listing: ToolListing) -> bytes:
    """The tools of an offer as OpenAI shows them."""
    reads = {tool.name: tool.reads for tool in listing.tools}
    return msgspec.json.encode(
        [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.schema,
                "annotations": {"read_only": reads[tool.name]},
            }
            for tool in offer.tools
        ]
    )


def _no_list(label: str, why: str) -> ApiError:
    """The refusal in OpenAI's words, with the reason."""
    return ApiError(
        424,
        f"Error retrieving tool list from MCP server: '{label}'. Http status code: 424 (Failed Dependency). {why}",
        type="external_connector_error",
        code="http_error",
        param="tools",
    )


class ToolRun:
    """The calls of one response. `aclose` ends its sessions."""

    def __init__(
        self,
        connections: Mapping[tuple[str, str], McpConnection],
        open_server: Callable[[McpConnection], ToolServer],
    ) -> None:
        """`connections` are those to servers, by the kind of their tools and their label."""
        self._connections = connections
        self._open = open_server
        self._sessions: dict[tuple[str, str], ToolServer] = {}

    async def call(self, call: HostedCall) -> Outcome:
        """Run a call. Returns its outcome, also of a failed call."""
        kind, label = call.tool.kind, call.tool.server
        try:
            arguments = _ARGUMENTS.decode(call.arguments or "{}")
        except (msgspec.DecodeError, RecursionError):
            return failed_outcome("The arguments are no JSON object.")
        connection = self._connections.get((kind, label))
        if connection is None:
            return failed_outcome(f"This service no longer has a server '{label}'.")
        try:
            session = self._sessions.get((kind, label)) or self._open(connection)
            self._sessions[kind, label] = session
            if kind == FILE_SEARCH:
                return await file_search.search(call, session)
            result = await session.call(call.tool.tool, arguments, repeatable=call.tool.repeatable)
        except ToolFailure as failure:
            return Outcome("failed", f"Error: {failure}", error=failure.error)
        if result.failed:
            outcome = failed_outcome(result.text)
            return msgspec.structs.replace(outcome, told=result.text or outcome.told)
        return Outcome("completed", result.text, output=result.text, pictures=result.pictures)

    async def aclose(self) -> None:
        """End all sessions, side by side."""
        sessions, self._sessions = self._sessions.values(), {}
        await asyncio.gather(*(session.close() for session in sessions))
