"""Clients and frameworks of others, unchanged, against the service: each case of each script `with_*`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.clients import SCRIPTS, ClientProcess, cases

CASES = [pytest.param(script, case, id=f"{script.stem}-{case}") for script in SCRIPTS for case in cases(script)]

pytestmark = pytest.mark.clients


@pytest.mark.parametrize(("script", "case"), CASES)
def test_a_client_gets_what_it_expects(client: Callable[[Path], ClientProcess], script: Path, case: str) -> None:
    wrong = client(script).run(case)
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)
