"""Services as tests of the core start them: without the demo engine and the embedded server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service import process
from tests.support.service.alone import features
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, CoreProcess


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services in this process have them too."""
    monkeypatch.setattr(process, "features", features)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoreProcess]:
    """A service without keys, for tests that don't mind each other."""
    started = CoreProcess(tmp_path_factory.mktemp("service"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoreProcess]:
    """A service for two tenants, acme and globex."""
    keys = f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"
    started = CoreProcess(tmp_path_factory.mktemp("tenants"), api_keys=keys)
    yield started
    started.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., CoreProcess]]:
    """Starts services with settings of one's own; they end with the test."""
    started: list[CoreProcess] = []

    def starter(**settings: object) -> CoreProcess:
        started.append(CoreProcess(tmp_path / f"service-{len(started)}", **settings))
        return started[-1]

    yield starter
    for each in started:
        each.stop()
