"""A bug that ends a part of what goes on beside requests: it costs no other part, and is said aloud."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any, cast

import httpx
import pytest

from service.background import tasks
from service.background.worker import Worker
from service.settings.settings import Settings, variable
from store.errors import StoreUnavailable
from store.layout import Layout
from tests.support.service.background import changed, ended, submitted
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.waiting import until

WORKER = """
import asyncio
from service.background import tasks
from service.commands.command_line import app
from service.engine.demo import DemoEngine

def say(word):
    print(word, flush=True)

async def loading(self):
    say("loading")
    await asyncio.Event().wait()

async def closed(self):
    say("closed")

async def faulty(*args):
    raise RuntimeError("a bug")

{fault}
app(["worker"])
"""
"""`harmonium worker` with a mistake in it."""

WAIT_SECONDS = 20


@contextlib.contextmanager
def faulty_worker(settings: Settings, fault: str) -> Iterator[subprocess.Popen[str]]:
    """A worker's process, until the end of the block."""
    given = {"redis_url": settings.redis_url, "key_prefix": settings.key_prefix}
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER.format(fault=fault)],
        env={"PYTHONPATH": ":".join(sys.path)} | {variable(name): value for name, value in given.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def probed(inside: Inside) -> httpx.Response:
    async with inside.http() as http:
        return await http.get("/ready")


async def faulty(*_: object) -> None:
    raise RuntimeError("a bug")


async def test_sweeping_that_fails_leaves_work_alone_and_is_said_by_the_probe(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "sweep_for_ever", faulty)
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        broken = await until(lambda: probed(inside), 10, wanted=lambda probe: probe.status_code == 503)
        assert (broken.json()["status"], broken.json()["worker"]) == ("unavailable", "broken")
        assert (await ended(client, (await submitted(client)).id)).output_text == "Hello."
    (record,) = [record for record in caplog.records if record.exc_info]
    assert cast(Any, record).fields == {"part": "sweeping"}


async def test_a_worker_that_fails_leaves_sweeping_alone_and_is_said_by_the_probe(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, swept = asyncio.Event(), asyncio.Event()

    async def sweep(*_: object) -> None:
        await go.wait()
        swept.set()
        await asyncio.Future()

    monkeypatch.setattr(tasks, "sweep_for_ever", sweep)
    monkeypatch.setattr(Worker, "work", faulty)
    async with serving(settings, scripted([])) as inside:
        await until(lambda: probed(inside), 10, wanted=lambda probe: probe.status_code == 503)
        go.set()
        await asyncio.wait_for(swept.wait(), WAIT_SECONDS)
        assert (await probed(inside)).json()["worker"] == "broken"


async def test_a_worker_process_that_has_a_fault_hands_back_and_says_so_by_its_status(settings: Settings) -> None:
    idle = changed(settings, worker=False)
    async with serving(idle, scripted([])) as inside, inside.client() as client:
        id = (await submitted(client)).id
        with faulty_worker(settings, "tasks.sweep_for_ever = faulty") as process:
            log, _ = await asyncio.to_thread(process.communicate, timeout=WAIT_SECONDS)
        assert process.returncode == 1, log
        assert "RuntimeError: a bug" in log
        async with serving(settings, scripted([answer("Hello.")])):
            assert (await ended(client, id)).status == "completed"


def test_a_worker_that_is_stopped_while_its_engine_loads_leaves_at_once_and_closes_what_it_opened(
    settings: Settings,
) -> None:
    with faulty_worker(settings, "DemoEngine.start, DemoEngine.close = loading, closed") as process:
        assert cast(IO[str], process.stdout).readline() == "loading\n"
        process.send_signal(signal.SIGTERM)
        log, _ = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, log) == (0, "closed\n")


async def test_a_store_that_is_away_at_the_start_has_its_record_as_soon_as_it_is_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    agree, tries = Layout.agree, iter(range(3))

    async def away_at_first(self: Layout) -> None:
        if next(tries, None) is not None:
            raise StoreUnavailable("away")
        await agree(self)

    monkeypatch.setattr(Layout, "agree", away_at_first)
    monkeypatch.setattr("service.background.tasks.SWEEP_SECONDS", 3600)
    async with serving(settings, scripted([])) as inside:
        record = inside.store.keyspace.all_shards()[0].store

        async def recorded() -> bool:
            async with inside.store.server.operation() as operation:
                return bool(await operation.command("EXISTS", record))

        await until(recorded, WAIT_SECONDS)
