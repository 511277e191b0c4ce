"""Shared by tests with a real vLLM: how a server is started for them, and its log at a failure."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.vllm.server import MODEL, START_SECONDS, VllmProcess

FINE_CACHE = ("--block-size", "32", "--prefix-cache-retention-interval", "128")
"""Smaller blocks than usual on a CPU show more of what is cached; the layers with a sliding window keep all of them."""

TEST_SECONDS = 2 * START_SECONDS
"""The most that a test may take, with the start of a server in it."""

_servers: list[VllmProcess] = []


@contextmanager
def lent(server: VllmProcess) -> Iterator[VllmProcess]:
    """A server that lives no longer than a fixture, which starts it."""
    _servers.append(server)
    try:
        yield server
    finally:
        server.stop()


def served(folder: Path, model: str, *arguments: str) -> Iterator[str]:
    """The URL of a server that lives as long as a fixture."""
    with lent(VllmProcess(folder, model)) as server:
        server.start(*arguments)
        yield server.url


@pytest.fixture(scope="session")
def vllm_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server with the talker for tests that don't mind each other; none may kill it, or fill it up."""
    yield from served(tmp_path_factory.mktemp("vllm"), MODEL, *FINE_CACHE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the servers said last beside a test that failed."""
    report = yield
    if report.failed:
        report.sections += [(f"log of vLLM at {server.url}", server.log_tail) for server in _servers]
    return report
