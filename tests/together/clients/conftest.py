"""The service, and the clients that are pointed at it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clients.clients import PYTHON, ClientProcess
from tests.support.service.process import ServiceProcess
from tests.support.tools.server import McpServer, mcp_server


@pytest.fixture(scope="session")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """A server of tools that the service may call."""
    with mcp_server(tmp_path_factory.mktemp("mcp")) as server:
        yield server


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """A server that stands for searches of files."""
    with mcp_server(tmp_path_factory.mktemp("library"), "tests.support.tools.library") as server:
        yield server


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory, mcp: McpServer, library: McpServer) -> Iterator[str]:
    """The address of a service as it is without any setting, but that all tools run which it can run."""
    yield from _serving(tmp_path_factory.mktemp("service"), mcp, library)


@pytest.fixture(scope="session")
def strict_url(tmp_path_factory: pytest.TempPathFactory, mcp: McpServer, library: McpServer) -> Iterator[str]:
    """The address of such a service that refuses a history as it refuses new input."""
    yield from _serving(tmp_path_factory.mktemp("strict"), mcp, library, unsupported="refuse")


def _serving(folder: Path, mcp: McpServer, library: McpServer, **others: str) -> Iterator[str]:
    assert PYTHON.exists(), "run scripts/setup clients first, or these tests by scripts/test --clients"
    (folder / "documents").mkdir()
    (folder / "documents" / "tides.md").write_text("# Tides\n\nHigh water is at ten.")
    (folder / "mcp.toml").write_text(f'[library]\nurl = "{library.url}"\ntype = "file_search"\ntool = "search"\n')
    service = ServiceProcess(
        folder,
        mcp_allow=mcp.url,
        mcp_servers=str(folder / "mcp.toml"),
        sandbox="local",
        search="folder",
        search_dir=str(folder / "documents"),
        chats="remember",
        **others,
    )
    yield service.url
    service.stop()


@pytest.fixture(scope="session")
def client(
    url: str, mcp: McpServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path], ClientProcess]]:
    """The process that runs a script, started when it is first asked for."""
    started: dict[Path, ClientProcess] = {}

    def of(script: Path) -> ClientProcess:
        if script not in started:
            started[script] = ClientProcess(tmp_path_factory.mktemp(script.stem), script, url, MCP_URL=mcp.url)
        return started[script]

    yield of
    for process in started.values():
        process.stop()
