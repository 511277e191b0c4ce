"""Usage is exactly what the responses say, after thousands of them with kills: no token is counted twice or never."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.storm import QUICK
from tests.support.service.process import MODEL
from tests.support.waiting import until

SECONDS = 60.0
TENANTS = {"acme": "sk-acme-0123456789", "globex": "sk-globex-0123456789", "loose": "sk-loose-0123456789"}
"""Tenants and their keys. Of the last nothing is stored."""


class Load:
    """Clients who ask again and again, whatever answers, until so many responses were made."""

    def __init__(self, fleet: Fleet, most: int) -> None:
        self.made = 0
        """How many were answered, or accepted."""
        self.unstored = 0
        """How many that aren't stored were asked for."""
        self._fleet = fleet
        self._most = most

    async def go_on(self) -> None:
        chance, last = self._fleet.chance, dict.fromkeys(TENANTS, "")
        async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http:
            while self.made < self._most:
                tenant = chance.choice(list(TENANTS))
                body: dict[str, Any] = {"model": MODEL, "input": "Count to 3.", "store": tenant != "loose"}
                if tenant == "loose":
                    self.unstored += 1
                else:
                    body["background"] = chance.random() < 0.3
                    if last[tenant] and chance.random() < 0.3:
                        body["previous_response_id"] = last[tenant]
                headers = {"authorization": f"Bearer {TENANTS[tenant]}"}
                url = f"{chance.choice(self._fleet.apis).url}/v1/responses"
                try:
                    answer = await http.post(url, json=body, headers=headers)
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
                    continue
                if answer.status_code != 200:
                    assert answer.status_code in (400, 500, 503), answer.text  # what it continues may not be there
                    last[tenant] = ""
                    await asyncio.sleep(0.05)
                    continue
                self.made += 1
                if answer.json()["status"] == "completed":
                    last[tenant] = answer.json()["id"]


async def make_trouble(fleet: Fleet, load: Load, kills: int, most: int) -> None:
    """Kill APIs, workers and the store, at moments that are spread over the load."""
    for number in range(kills):
        threshold = most * (number + fleet.chance.random()) / kills
        await until(lambda threshold=threshold: load.made >= threshold, 3_600)
        victim = fleet.chance.choice([fleet.store, *fleet.members])
        fleet.kill(victim)
        fleet.launch(victim)
        await (fleet.store.ready() if victim is fleet.store else asyncio.sleep(0))


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_usage_is_exact_after_ten_thousand_responses_with_kills(tmp_path: Path) -> None:
    keys = ",".join(f"{tenant}:{key}" for tenant, key in TENANTS.items())
    quick = QUICK | {"demo_tokens_per_second": 5_000, "shards": 3, "api_keys": keys, "store_patience_seconds": 20}
    async with running(tmp_path, 17, **quick) as fleet:
        load = Load(fleet, 10_000)
        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(load.go_on())
            group.create_task(make_trouble(fleet, load, 40, 10_000))
        async with Aftermath(fleet.settings) as aftermath:
            await until(lambda: aftermath.left_over(timed=False), 120, "jobs are left", wanted=lambda left: not left)
            said, counted = await aftermath.used_by_responses(), await aftermath.used()
            loose = counted.pop("loose")
            assert counted == said
            assert sum(each.requests for each in said.values()) + load.unstored >= 10_000
            assert 0 < loose.requests <= load.unstored
            assert (loose.input_tokens % loose.requests, loose.output_tokens % loose.requests) == (0, 0)
            print(f"stored {said}, not stored {loose} of {load.unstored}\n{fleet.history}")
