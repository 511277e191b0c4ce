"""What tests of several rooms ask for: services as processes and in the test's own loop, and the oracle of Harmony."""

import gc
import os
import socket
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples

from service.process import Settings, load_settings
from service.settings.sources import PREFIX
from store.embedded import EmbeddedServer
from tests.support.oracles.harmony import Oracle
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, ServiceProcess

# how long one example takes says nothing on a busy machine
examples.register_profile("long", max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.register_profile("short", examples.get_profile("long"), max_examples=25, derandomize=True)
examples.load_profile("short")  # scripts/test --full tries properties with the long one

pytest_plugins = ("tests.support.llama.fixtures", "tests.support.vllm.fixtures")
"""Servers of models take long to start: there is one for all tests."""

SECOND_SERVER = "valkey"
"""The server on which the store's tests run in the long form alone: it is the one of all services in tests."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from all that is collected: looking through it would take half of the time, and goes
    on in each test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Leave tests of the second server to the long form, and begin with the files of which one may take longest: at
    the end, when one process has nothing left, the others have short ones.
    """
    for item in items:
        if SECOND_SERVER in item.name:
            item.add_marker(pytest.mark.full)
    yield
    longest = dict.fromkeys((item.path for item in items), 0.0)
    for item in items:
        for timeout in item.iter_markers("timeout"):
            longest[item.path] = max(longest[item.path], timeout.args[0])
    items.sort(key=lambda item: -longest[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why services on the demo engine were without the names of models, where a vLLM server is beside them."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", 8001), timeout=0.1):
        terminalreporter.write_line(
            "A server at 127.0.0.1:8001: if it is a vLLM, the demo engine answers as `demo` alone.", yellow=True
        )


@pytest.fixture(scope="session")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which tests run, which they leave empty."""
    folder = tmp_path_factory.mktemp("nowhere")
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    for name in list(os.environ):
        if name.startswith((PREFIX, "OTEL_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(nowhere)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """openai-harmony, loaded once per process and without a network."""
    return Oracle(tmp_path_factory.mktemp("vocabulary"))


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


@pytest.fixture
def beside(tmp_path: Path, redis_url: str) -> Iterator[Callable[..., ServiceBeside]]:
    """Starts services with settings of one's own in a thread of this process; they end with the test."""
    started: list[ServiceBeside] = []

    def starter(**settings: object) -> ServiceBeside:
        started.append(ServiceBeside(tmp_path / f"beside-{len(started)}", redis_url, **settings))
        return started[-1]

    yield starter
    for each in started:
        each.stop()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store for services in the test's own loop."""
    with EmbeddedServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def settings(redis_url: str) -> Settings:
    """Settings of a service with an empty store of its own."""
    prefix = f"test-{uuid.uuid4().hex}"
    return load_settings(redis_url=redis_url, redis_prefix=prefix, store_timeout_seconds=10.0, lease_seconds=30.0)
