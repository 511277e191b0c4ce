"""A search of files in a process: nothing by itself. MCP servers do it (service/features/mcp/toolbox.py)."""

from service.process import Feature


class FileSearchFeature(Feature):
    """A search of files."""


FEATURE = FileSearchFeature()
