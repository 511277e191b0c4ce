"""A server to kill for the tests with a real vLLM."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.vllm.fixtures import TEST_SECONDS, lent
from tests.support.vllm.server import VllmProcess


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmProcess]:
    """A vLLM server that the module starts as it likes, and may kill."""
    with lent(VllmProcess(tmp_path_factory.mktemp("mortal"))) as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time for a server to start."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))
