"""A batch whose workers, API and Redis are killed while it is made: each of its lines is answered once all the same."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from openai.types import Batch
from redis.asyncio import Redis

from tests.support.batches import ENDED, answers_of, begun
from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.storm import QUICK
from tests.support.waiting import until

SECONDS = 240.0
SETTINGS: dict[str, Any] = QUICK | {"demo_tokens_per_second": 2_000, "worker_concurrency": 8}
LINES = 300


def asked(number: int) -> str:
    body = {"model": "demo", "input": f"Count to {number % 7 + 1}.", "metadata": {"line": str(number)}}
    return json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": "/v1/responses", "body": body})


@pytest.mark.timeout(300)
async def test_each_line_is_answered_once_though_everything_dies(tmp_path: Path) -> None:
    async with running(tmp_path, 11, apis=1, workers=2, fsync="always", **SETTINGS) as fleet:
        client = AsyncOpenAI(base_url=f"{fleet.apis[0].url}/v1", api_key="none", max_retries=9, timeout=60)
        async with client:
            batch = await begun(client, [asked(number) for number in range(LINES)])
            killing = asyncio.create_task(kill_one_after_the_other(fleet))
            try:
                batch = await ended(client, batch.id)
            finally:
                killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
            assert batch.status == "completed"
            for process in (fleet.store, *fleet.members):
                if not process.alive:
                    fleet.launch(process)
                await process.ready()
            made = await answers_of(client, batch.output_file_id)
            assert batch.error_file_id is None
            assert made.keys() == {f"line-{number}" for number in range(LINES)}
            bodies = {name: line["response"]["body"] for name, line in made.items()}
            assert all(f"line-{body['metadata']['line']}" == name for name, body in bodies.items())
            assert len({body["id"] for body in bodies.values()}) == LINES
            assert {body["status"] for body in bodies.values()} == {"completed"}
            await until(lambda: left_over(fleet), 90, wanted=lambda left: left == 0)


async def kill_one_after_the_other(fleet: Fleet) -> None:
    """Kill each, amid whatever it does, and go on when it is back."""
    while True:
        for victim in (*fleet.workers, fleet.store, fleet.apis[0]):
            await asyncio.sleep(fleet.chance.uniform(0.1, 2))  # the chance is what is tested
            fleet.kill(victim)
            fleet.launch(victim)
            await victim.ready()


async def ended(client: AsyncOpenAI, id: str) -> Batch:
    async def look() -> Batch | None:
        try:
            return await client.batches.retrieve(id)
        except (APIConnectionError, APIStatusError):  # what answers is being killed, too
            return None

    found = await until(look, SECONDS, wanted=lambda found: found is not None and found.status in ENDED)
    assert found is not None
    return found


async def left_over(fleet: Fleet) -> int:
    """How many responses are stored by now."""
    async with Redis.from_url(fleet.store.url) as redis:
        return len([key async for key in redis.scan_iter("*:node:*", count=1_000)])
