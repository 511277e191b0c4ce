"""Clients and frameworks of others, unchanged, against the service: each case of each script `with_*`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients.clients import FULL, FULL_SCRIPTS, SCRIPTS, ClientProcess, cases

CASES = [
    pytest.param(script, case, id=f"{script.stem}-{case.removeprefix('test_')}")
    for script in SCRIPTS
    for case in cases(script)
]
LARGE = [
    pytest.param(script, case, id=f"{script.stem}-{case.removeprefix('test_')}", marks=pytest.mark.full)
    for script in FULL_SCRIPTS
    for case in cases(script)
]
FAULTY = {
    "faulty.py": """
def test_right(): pass
async def test_wrong(): raise ValueError("the reason")
""",
    "faulty.mjs": """
export function test_right() {}
export async function test_wrong() { await null; throw new Error("the reason") }
""",
}

pytestmark = pytest.mark.clients


@pytest.mark.parametrize(("script", "case"), CASES)
def test_a_client_gets_what_it_expects(client: Callable[[Path], ClientProcess], script: Path, case: str) -> None:
    wrong = client(script).run(case)
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize(("script", "case"), LARGE)
def test_so_does_one_that_is_large(url: str, tmp_path: Path, script: Path, case: str) -> None:
    process = ClientProcess(tmp_path, script, url, FULL)
    wrong = process.run(case)
    process.stop()
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize("name", FAULTY)
def test_a_case_that_goes_wrong_is_told_and_the_rest_goes_on(url: str, tmp_path: Path, name: str) -> None:
    script = tmp_path / name
    script.write_text(FAULTY[name])
    (tmp_path / "home").mkdir()
    process = ClientProcess(tmp_path / "home", script, url)
    told = {case: process.run(case) for case in reversed(cases(script))}
    process.stop()
    assert "the reason" in (told["test_wrong"] or "")
    assert told["test_right"] is None
