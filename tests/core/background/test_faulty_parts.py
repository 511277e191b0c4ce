"""A bug that ends a part of what goes on beside requests: it costs no other part, and is said aloud."""

import asyncio
import subprocess
import sys
from typing import Any, cast

import httpx
import pytest

from service.background import tasks
from service.process import Settings
from service.settings.sources import variable
from tests.support.service.background import changed, ended, submitted
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.waiting import until

WORKER = """
from service.background import tasks
from service.commands.command_line import app

async def faulty(*args):
    raise RuntimeError("a bug")

tasks.sweep_for_ever = faulty
app(["worker", "--engine-url", "http://127.0.0.1:1"])
"""
"""`harmonium worker` with a mistake in it."""

WAIT_SECONDS = 20


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
        broken = await until(lambda: probed(inside), wanted=lambda probe: probe.status_code == 503)
        assert (broken.json()["status"], broken.json()["worker"]) == ("unavailable", "broken")
        assert (await ended(client, (await submitted(client)).id)).output_text == "Hello."
    (record,) = [record for record in caplog.records if record.exc_info]
    assert cast(Any, record).fields == {"part": "sweeping"}


async def test_a_worker_process_that_has_a_fault_hands_back_and_says_so_by_its_status(settings: Settings) -> None:
    idle = changed(settings, embedded_worker=False)
    async with serving(idle, scripted([])) as inside, inside.client() as client:
        id = (await submitted(client)).id
        given = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix}
        process = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", WORKER],
            env={"PYTHONPATH": ":".join(sys.path)} | {variable(name): value for name, value in given.items()},
            capture_output=True,
            timeout=WAIT_SECONDS,
        )
        assert process.returncode == 1
        assert b"RuntimeError: a bug" in process.stdout + process.stderr
        async with serving(settings, scripted([answer("Hello.")])):
            assert (await ended(client, id)).status == "completed"
