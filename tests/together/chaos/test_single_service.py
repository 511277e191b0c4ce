"""One `harmonium serve` with all in it: the API, the work, and the embedded server that goes down with it."""

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from tests.support.chaos.follower import Follower
from tests.support.chaos.inside import counted
from tests.support.chaos.storm import QUICK
from tests.support.service.process import ServiceProcess
from tests.support.waiting import until

COUNTED = 400
SECONDS = 30.0
STOP_SECONDS = 10.0
"""It may go on for SHUTDOWN_SECONDS, 30; but when nobody works any more there is nothing to wait for."""

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def counting(service: ServiceProcess) -> AsyncIterator[Follower]:
    """Follows a response in the middle of its answer; in the end it was whole, whatever happened to the service."""
    follower = Follower(lambda: [service.url], Random(0))
    task = asyncio.create_task(follower.create(input=f"Count to {COUNTED}."))
    try:
        await until(lambda: len(follower.events) > 100, SECONDS, "it says nothing")
        yield follower
        async with asyncio.timeout(SECONDS):
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (follower.response["status"], follower.text) == ("completed", counted(COUNTED))
    assert follower.connections == 2


async def test_a_service_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, demo_tokens_per_second=150)
    try:
        async with counting(service):
            asked = time.monotonic()
            service.ask_to_stop()
            assert await asyncio.to_thread(service.wait) == 0
            assert time.monotonic() - asked < STOP_SECONDS
            await asyncio.to_thread(service.start)
    finally:
        service.stop()


async def test_a_service_of_two_processes_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, demo_tokens_per_second=150, workers=2, **QUICK)
    try:
        async with counting(service):
            service.kill()
            await until(lambda: _nobody_listens(service.port), SECONDS, "its processes don't follow it")
            await asyncio.to_thread(service.start)
    finally:
        service.stop()


def _nobody_listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
