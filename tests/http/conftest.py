"""Services to test over HTTP: as processes, and in the test's own loop."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.settings.settings import PREFIX, Settings, load_settings
from store.embedded import EmbeddedServer
from tests.http.process import ServiceProcess

ACME_KEY, GLOBEX_KEY = "sk-acme-0123456789", "sk-globex-0123456789"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service without keys, for tests that don't mind each other."""
    process = ServiceProcess(tmp_path_factory.mktemp("service"))
    yield process
    process.stop()


@pytest.fixture(scope="session")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service for two tenants, acme and globex."""
    keys = f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"
    process = ServiceProcess(tmp_path_factory.mktemp("tenants"), api_keys=keys)
    yield process
    process.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    """Starts services with settings of one's own; they end with the test."""
    started: list[ServiceProcess] = []

    def starter(**settings: object) -> ServiceProcess:
        process = ServiceProcess(tmp_path / f"service-{len(started)}", **settings)
        started.append(process)
        return process

    yield starter
    for process in started:
        process.stop()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store for services in the test's own loop."""
    with EmbeddedServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def settings(redis_url: str) -> Settings:
    """Settings of a service with an empty store of its own."""
    prefix = f"test-{uuid.uuid4().hex}"
    return load_settings(redis_url=redis_url, key_prefix=prefix, store_timeout_seconds=10.0, lease_seconds=30.0)
