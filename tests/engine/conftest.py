"""What the engines' tests share."""

import pytest

from tests.protocol.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """openai-harmony, loaded once per process and without a network."""
    return Oracle(tmp_path_factory.mktemp("vocabulary"))
