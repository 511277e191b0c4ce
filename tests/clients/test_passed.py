"""Chat Completions with clients of others: each case of a script `passed_*`, with SmolLM2 on a real llama.cpp."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.clients import CASES as FOLDER
from tests.support.clients.clients import ClientProcess, cases
from tests.support.llama.smol import smol_server
from tests.support.llama.talker import KEY
from tests.support.service.process import ServiceProcess

SCRIPT = FOLDER / "passed_openai_node.mjs"

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProcess]:
    """The process that runs the script."""
    server = smol_server()
    service = ServiceProcess(
        tmp_path_factory.mktemp("passing"), engine="llama", engine_url=server.url, engine_api_key=KEY
    )
    home: Path = tmp_path_factory.mktemp("home")
    process = ClientProcess(home, SCRIPT, service.url, MODEL="smol")
    yield process
    process.stop()
    service.stop()
    server.kill()


@pytest.mark.parametrize("case", cases(SCRIPT))
def test_a_client_gets_what_it_expects_of_what_is_passed_on(client: ClientProcess, case: str) -> None:
    wrong = client.run(case)
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)
