"""A receiver of traces, and the settings of a service that sends them there at once."""

from collections.abc import Iterator

import pytest

from service.process import Settings
from tests.support.tools.server import McpServer, mcp_server
from tests.support.tracing.receiver import Receiver, receiving

DELAY_MS = "20"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def traced(settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a service that is traced, with a store of its own."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS)
    return settings.model_copy(update={"traces_url": receiver.url})


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    with mcp_server(tmp_path_factory.mktemp("mcp")) as server:
        yield server
