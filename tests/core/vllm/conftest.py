"""What the tests with a real vLLM share: servers for all, one to kill; and the servers' logs at a failure."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.vllm.server import MODEL, SEEING, SMOL, START_SECONDS, VllmProcess

FINE_CACHE = ("--block-size", "32", "--prefix-cache-retention-interval", "128")
"""Smaller blocks than usual on a CPU show more of what is cached; the layers with a sliding window keep all of them."""

TEST_SECONDS = 2 * START_SECONDS
"""The most that a test may take, with the start of a server in it."""

_servers: list[VllmProcess] = []


def _url(folder: Path, model: str, *arguments: str) -> Iterator[str]:
    """The URL of a server that lives as long as a fixture."""
    server = VllmProcess(folder, model)
    _servers.append(server)
    try:
        server.start(*arguments)
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="session")
def vllm_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server for tests that don't mind each other; none may kill it, or fill it up."""
    yield from _url(tmp_path_factory.mktemp("vllm"), MODEL, *FINE_CACHE)


@pytest.fixture(scope="session")
def smol_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server of SmolLM2, as above."""
    yield from _url(tmp_path_factory.mktemp("smol"), SMOL, *FINE_CACHE[:2])


@pytest.fixture(scope="module")
def seeing_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server of a toy that is shown pictures, as above."""
    room = ("--max-model-len", "65536", "--max-num-batched-tokens", "65536")
    yield from _url(tmp_path_factory.mktemp("seeing"), SEEING, *FINE_CACHE[:2], *room)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmProcess]:
    """A vLLM server that the module starts as it likes, and may kill."""
    server = VllmProcess(tmp_path_factory.mktemp("mortal"))
    _servers.append(server)
    try:
        yield server
    finally:
        server.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the servers said last beside a test that failed."""
    report = yield
    if report.failed:
        report.sections += [(f"log of vLLM at {server.url}", server.log_tail) for server in _servers]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time for a server to start."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))
