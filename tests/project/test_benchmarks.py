"""The benchmarks run: each prints its verdicts, whatever the figures are on a machine that does other work."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT = {
    "batch": ("--lines", "20"),
    "continuation": ("--rounds", "2"),
    "create": ("--rounds", "1", "--requests", "8"),
}
LONG = {
    "archive": ("--quick",),
    "background": ("--quick",),
    "soak": ("--minutes", "1", "--kills"),
    "start": ("--starts", "1"),
    "store": ("--quick",),
    "stream": ("--rounds", "1"),
    "tenants": (),
    "websocket": ("--rounds", "1"),
}
INSTALLED = {"aiperf", "job", "peers", "vllm"}
"""These need a gateway, a load generator or an engine that the tests' environment doesn't have."""

KINDS = [
    *(pytest.param(name, said, id=name) for name, said in SHORT.items()),
    *(
        pytest.param(name, said, id=name, marks=[pytest.mark.full, pytest.mark.timeout(900)])
        for name, said in LONG.items()
    ),
]


@pytest.mark.parametrize(("name", "said"), KINDS)
def test_a_benchmark_prints_its_verdicts(name: str, said: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", f"bench.{name}", *said]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^({name}|met|missed): ", done.stdout, re.MULTILINE), done.stdout


def test_each_benchmark_is_tried_or_needs_an_installation() -> None:
    found = {path.stem for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith("_")}
    assert found == {*SHORT, *LONG, *INSTALLED}
