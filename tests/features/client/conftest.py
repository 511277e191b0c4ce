"""A service in a process of its own, and the commands of its clients."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.service.process import ServiceProcess
from tests.support.store.fixtures import prefix as prefix
from tests.support.store.fixtures import server_url as server_url

PACE = 200
"""Tokens a second: slow enough to be interrupted, and quick enough to wait for."""


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    """A service without keys, with the demo engine."""
    process = ServiceProcess(
        tmp_path_factory.mktemp("service"), demo_tokens_per_second=PACE, store_timeout_seconds=10, lease_seconds=30
    )
    yield process
    process.stop()


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    if "service" in request.fixturenames:
        monkeypatch.setenv("HARMONIUM_URL", request.getfixturevalue("service").url)
