"""A server of tools for all tests of this room."""

from collections.abc import Iterator

import pytest

from tests.support.tools.server import McpServer, mcp_server


@pytest.fixture(scope="session")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """A server whose tools answer at once, or wait."""
    with mcp_server(tmp_path_factory.mktemp("mcp")) as server:
        yield server
