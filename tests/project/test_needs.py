"""scripts/test installs what the chosen tests need and nothing else: by their imports, and with stand-ins."""

import re
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.needs import needs

PROXIES = {"nginx": "nginx-light", "haproxy": "haproxy", "caddy": "caddy"}
POSTGRES = {"pg_ctlcluster": "postgresql"}
SMOL = {"smol": "scripts/setup"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/settings", {}),
        ("tests/engine/llama/test_smol.py", SMOL),
        ("tests/deploy/test_proxies.py", PROXIES),
        ("tests/store/archive/test_links.py", POSTGRES | {"redis-server": "redis-server"}),  # of the store's conftest
        ("tests/chaos", POSTGRES | SMOL),
    ],
)
def test_tests_need_what_they_and_their_conftests_import(path: str, expected: dict[str, str]) -> None:
    assert needs(path) == expected


def test_whoever_looks_for_a_program_of_debian_says_what_it_needs() -> None:
    looks = re.compile(r"program_path\(|which\(\"(?!kubectl|curl|bash|openssl)")
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name not in ("needs.py", Path(__file__).name) and looks.search(path.read_text()):
            assert "NEEDS" in path.read_text(), path
