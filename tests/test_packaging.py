"""What surrounds the code: scripts that parse and say what they want, and container files that keep their
promises.

There is no YAML parser among the dependencies, so compose.yaml is read as text. Nothing here may need Docker.
"""

import re
import subprocess
from pathlib import Path

import pytest

from service.settings import Settings, variable

ROOT = Path(__file__).parents[1]
SCRIPTS = [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run"]


def read(name: str) -> str:
    return (ROOT / name).read_text()


def without_comments(text: str) -> str:
    return re.sub(r"(?m)^\s*#.*\n", "", text)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_stops_at_errors_and_can_be_run_from_anywhere(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True, timeout=10)
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert "set -euo pipefail\n" in text
    assert 'cd "$(dirname "${BASH_SOURCE[0]}")/' in text
    assert script.stat().st_mode & 0o111 == 0o111


def test_a_benchmark_that_is_not_there_is_refused_with_those_that_are() -> None:
    command = [ROOT / "scripts/bench", "nothing"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=10, cwd="/")
    assert result.returncode == 2
    assert "there is no bench/nothing.py" in result.stderr
    assert all(f"  {path.stem}\n" in result.stderr for path in (ROOT / "bench").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", ["serve", "dev"])
def test_what_is_installed_is_pinned_and_hashed(name: str) -> None:
    lock = read(f"requirements/{name}.txt")
    packages = re.findall(r"(?m)^[A-Za-z].*", lock)
    pinned = re.findall(r"(?m)^[A-Za-z]\S*==\S+.* \\\n +--hash=sha256:[0-9a-f]{64}", lock)
    assert len(packages) == len(pinned) > 10


def test_dev_contains_serve() -> None:
    serve, dev = (set(re.findall(r"(?m)^\S+==[^\s;]+", read(f"requirements/{name}.txt"))) for name in ("serve", "dev"))
    assert serve <= dev


def test_the_image_runs_as_nobody_special_from_hashed_packages_and_reports_its_health() -> None:
    text = without_comments(read("Dockerfile"))
    assert "--require-hashes -r requirements/serve.txt" in text
    assert re.findall(r"(?m)^USER (.+)$", text) == ["harmonium"]
    assert "HARMONIUM_HOST=0.0.0.0" in text
    assert re.search(r'(?s)HEALTHCHECK .*CMD \["python".*/health', text)
    assert re.findall(r"(?m)^(?:ENTRYPOINT|CMD) (.)", text) == ["[", "["]


def test_the_builder_gets_no_keys_and_no_environments() -> None:
    lines = without_comments(read(".dockerignore")).split()
    assert lines[0] == "*"
    assert not any(name in line for line in lines for name in (".env", ".venv", ".git"))


def test_compose_keeps_conversations_on_disk_and_never_lets_redis_evict() -> None:
    text = without_comments(read("compose.yaml"))
    assert "image: redis:7" in text
    assert '"--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"' in text
    assert "conversations:/data" in text
    assert 'test: ["CMD", "redis-cli", "ping"]' in text


def test_compose_does_not_start_without_a_key() -> None:
    text = without_comments(read("compose.yaml"))
    assert "HARMONIUM_API_KEYS: ${HARMONIUM_API_KEYS:?" in text
    assert "condition: service_healthy" in text
    assert "127.0.0.1:8000:8000" in text


def test_container_files_set_only_what_can_be_set() -> None:
    named = set(re.findall(r"HARMONIUM_[A-Z_]+", read("Dockerfile") + read("compose.yaml")))
    assert named <= {variable(name) for name in Settings.model_fields}
