"""A real llama.cpp server for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.support.llama.talker import LlamaProcess


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    """Where the talker is served."""
    server = LlamaProcess()
    yield server.url
    server.kill()
