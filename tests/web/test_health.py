"""The probes: alive is one thing, ready another, and the second says what is missing."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.engine.port import EngineUnavailable
from service.settings.settings import Settings
from tests.support.service.inside import scripted, serving
from tests.support.service.process import ServiceProcess


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing until the end of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_service_that_works_is_alive_and_ready(service: ServiceProcess) -> None:
    assert service.http().get("/health").json() == {"status": "ok"}
    assert service.http().get("/ready").json() == {"status": "ok", "store": "ok", "engine": "ok", "worker": "ok"}


def test_a_store_that_hangs_makes_it_unready_within_its_timeout_and_no_less_alive(
    start: Callable[..., ServiceProcess],
) -> None:
    service = start(store_timeout_seconds=0.5)
    with stopped(service.redis_pid()):
        begun = time.monotonic()
        answer = service.http().get("/ready")
        assert time.monotonic() - begun < 1.5
        assert answer.status_code == 503
        assert answer.json() == {"status": "unavailable", "store": "unavailable", "engine": "ok", "worker": "ok"}
        assert service.http().get("/health").status_code == 200
    assert service.http().get("/ready").status_code == 200


async def test_an_engine_that_is_not_ready_is_named(settings: Settings) -> None:
    engine = scripted([])
    async with serving(settings, engine) as inside, inside.http() as http:
        assert (await http.get("/ready")).status_code == 200
        engine.unready = EngineUnavailable("the model is still loading")
        answer = await http.get("/ready")
        assert (answer.status_code, answer.json()["engine"], answer.json()["store"]) == (503, "unavailable", "ok")
        assert "loading" not in answer.text
        assert (await http.get("/health")).status_code == 200
