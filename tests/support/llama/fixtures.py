"""A real llama.cpp server for all tests of a process."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    """Where the talker is served."""
    from tests.support.llama.talker import LlamaProcess  # where the feature is away, other tests are still collected

    server = LlamaProcess()
    yield server.url
    server.kill()
