"""Background responses over a real vLLM: a worker's death costs no token, and a cancel frees the server.

The talker's answers are the same every time at temperature 0, so one that was broken off and gone on with has to be
word for word the one that nobody disturbed.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.follower import Follower
from tests.support.chaos.storm import QUICK
from tests.support.service.process import ServiceProcess
from tests.support.vllm.server import MODEL, metric
from tests.support.waiting import until

pytestmark = pytest.mark.vllm

COUNTING = "Count to 200."
RESPONSES = 4
SPOKEN = 60
"""After how many events of each a worker is killed."""

SECONDS = 60.0
FREED_SECONDS = 2.0
"""How long the server may go on after a cancel; it is some 10 ms on a quiet machine."""


@pytest.fixture
async def fleet(vllm_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """An API and two workers before the server."""
    async with running(tmp_path, seed=6, apis=1, engine="vllm", engine_url=vllm_url, **QUICK) as fleet:
        yield fleet


def follower(fleet: Fleet) -> Follower:
    """Somebody who will follow a response."""
    return Follower(lambda: [fleet.apis[0].url], fleet.chance)


async def busy(url: str) -> float:
    """How many generations the vLLM server has."""
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS, trust_env=False, verify=False) as http:
        exposed = (await http.get("/metrics")).text
    return metric(exposed, "vllm:num_requests_running") + metric(exposed, "vllm:num_requests_waiting")


def undisturbed(vllm_url: str, folder: Path) -> str:
    """What is said where nothing happens."""
    service = ServiceProcess(folder, engine="vllm", engine_url=vllm_url)
    try:
        return service.client().responses.create(model=MODEL, input=COUNTING, temperature=0).output_text
    finally:
        service.stop()


async def test_an_answer_whose_worker_is_killed_is_undisturbed(fleet: Fleet, vllm_url: str, tmp_path: Path) -> None:
    expected = await asyncio.to_thread(undisturbed, vllm_url, tmp_path / "undisturbed")
    followers = [follower(fleet) for _ in range(RESPONSES)]
    tasks = [asyncio.create_task(each.create(model=MODEL, input=COUNTING, temperature=0)) for each in followers]
    for worker in fleet.workers:
        spoken = {each: len(each.events) + SPOKEN for each in followers}
        await until(
            lambda spoken=spoken: all(each.over or len(each.events) > spoken[each] for each in followers),
            SECONDS,
            "it doesn't speak",
        )
        fleet.kill(worker)
        fleet.launch(worker)
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*tasks)
    assert {each.text for each in followers} == {expected}
    assert {each.response["status"] for each in followers} == {"completed"}
    epochs = [line for worker in fleet.workers for line in worker.log.splitlines() if "epoch=1" not in line]
    assert any("outcome=ended" in line for line in epochs), "nobody took anything over"


async def test_a_cancel_frees_the_server(fleet: Fleet, vllm_url: str) -> None:
    asked = follower(fleet)
    task = asyncio.create_task(asked.create(model=MODEL, input="Count to 1000.", temperature=0))
    await until(lambda: len(asked.events) > SPOKEN, SECONDS, "it doesn't speak")
    assert await busy(vllm_url) == 1
    async with httpx.AsyncClient(base_url=fleet.apis[0].url, timeout=SECONDS, trust_env=False, verify=False) as http:
        reply = await http.post(f"/v1/responses/{asked.id}/cancel", headers={"content-type": "application/json"})
    assert reply.json()["status"] == "cancelled"

    async def freed() -> bool:
        return await busy(vllm_url) == 0

    await until(freed, FREED_SECONDS, "the server goes on")
    await task
    assert asked.response == reply.json()
