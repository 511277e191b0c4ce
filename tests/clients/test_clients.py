"""Clients and frameworks of others, unchanged, against the service: each case of each script `with_*`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clients.clients import SCRIPTS, ClientProcess, cases

CASES = [
    pytest.param(script, case, id=f"{script.stem}-{case.removeprefix('test_')}")
    for script in SCRIPTS
    for case in cases(script)
]
FAULTY = {
    "faulty.py": """
def test_right(): pass
def test_wrong(): assert 1 == 2, "the reason"
async def test_wrong_later(): raise ValueError("the reason")
def test_gone(): raise SystemExit("the reason")
""",
    "faulty.mjs": """
export async function test_right() {}
export function test_wrong() { throw new Error("the reason") }
export async function test_wrong_later() { await null; throw new Error("the reason") }
export function test_gone() { console.log("the reason"); process.exit() }
""",
}

pytestmark = pytest.mark.clients


@pytest.mark.parametrize(("script", "case"), CASES)
def test_a_client_gets_what_it_expects(client: Callable[[Path], ClientProcess], script: Path, case: str) -> None:
    wrong = client(script).run(case)
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)


@pytest.fixture(params=FAULTY)
def faulty(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[ClientProcess]:
    """A script of which only one case is right."""
    script = tmp_path / str(request.param)
    script.write_text(FAULTY[script.name])
    assert cases(script) == ["test_right", "test_wrong", "test_wrong_later", "test_gone"]
    (tmp_path / "home").mkdir()
    process = ClientProcess(tmp_path / "home", script, url)
    yield process
    process.stop()


def test_what_goes_wrong_is_told_with_its_place_and_the_rest_goes_on(faulty: ClientProcess) -> None:
    for case in ("test_wrong", "test_wrong_later"):
        wrong = faulty.run(case)
        assert wrong is not None
        assert "the reason" in wrong
        assert "faulty." in wrong
    assert faulty.run("test_right") is None
