"""MCP in a process: tools of servers, and approvals of their calls."""

from pathlib import Path

from service.features.mcp.approvals import McpApprovals
from service.features.mcp.settings import McpSettings, servers_in
from service.features.mcp.toolbox import Toolbox, no_server
from service.process import Feature, Parts
from service.settings.sources import variable
from service.ssrf import outside_of
from service.tools.port import ToolLimits
from store.history.approvals import StoredApprovals


class McpFeature(Feature):
    """Tools of MCP servers."""

    tool_settings = {"mcp": variable("mcp_servers")}

    def compose(self, parts: Parts) -> None:
        """See Feature. The client of servers is imported where there may be any: it takes 50 MiB."""
        settings, opener = McpSettings.of(parts.settings), no_server
        if settings.mcp_servers or settings.mcp_allow:
            from service.features.mcp.session import opener_of
            from service.features.mcp.transports import PROCESSES, Processes, tls

            tls()
            processes = Processes(PROCESSES, several=lambda: settings.several_tenants)
            limits = ToolLimits(call_seconds=settings.tool_seconds)
            opener = opener_of(limits, processes, outside_of(settings.private_networks))
        servers = servers_in(Path(settings.mcp_servers)) if settings.mcp_servers else {}
        parts.tools.append(Toolbox(servers, settings.mcp_allow, opener, allowing=variable("mcp_allow")))
        parts.approvals = McpApprovals(StoredApprovals(parts.store))


FEATURE = McpFeature()
