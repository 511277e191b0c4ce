"""A store that is killed at every step of a response, and started again on its folder.

It syncs before it acknowledges, and is back before its clients have given up: so every response is there, once and in
order, whoever asks again with its key is told of it, and it is counted once.
"""

import asyncio
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from openai import AsyncOpenAI

from service import app
from service.process import load_settings, open_service
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Store
from tests.support.chaos.inside import WatchedEngine, counted, opened
from tests.support.chaos.mortal import KEYED_STEPS, LIMITED_STEPS
from tests.support.chaos.watched import watched
from tests.support.service.inside import serving
from tests.support.service.listed import said
from tests.support.service.process import MODEL
from tests.support.service.tenants import tally_of
from tests.support.waiting import until
from tests.together.chaos.scenarios.counting import LIMITS, later, used_this_month

PATIENT: dict[str, Any] = {"lease_seconds": 30.0, "store_timeout_seconds": 10.0}
"""Nobody gives up while a store starts on a busy machine."""

TOKENS_PER_SECOND = 250
"""So slowly that something is written before the end."""

SOON_SECONDS = 0.003
"""Within so long after a step a command of it is under way."""

SECONDS = 30.0
ANSWERED = ("assistant", counted(5))

STEPS: dict[str, tuple[str, ...]] = {
    "in a conversation": (*KEYED_STEPS, "admitting", "admitted", "holding", "held", "read", "adding", "added"),
    "alone": tuple(step for step in LIMITED_STEPS if not step.startswith("admit")),
    "unstored": ("counting", "counted"),
    "in the background": ("submitting", "submitted", "claimed", "writing", "written", "finishing", "finished"),
}
"""The steps at which the store is killed, by how a response is asked for."""


class Outages(Store):
    """A store that syncs each write, and is killed at steps and started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "always")
        self._chance = Random(7)
        self._step: str | None = None
        self._amid = False
        self._restart: asyncio.Task[None] | None = None

    def order(self, step: str, *, amid: bool) -> None:
        """The next time that this step is come to, the store is killed, or soon after while others go on (`amid`)."""
        self._step, self._amid = step, amid

    async def at(self, step: str) -> None:
        if step != self._step:
            return
        self._step = None
        self._restart = asyncio.create_task(self._kill())
        if not self._amid:
            await self._restart

    async def over(self) -> None:
        """Wait until there was one, and the store is back."""
        await until(lambda: self._restart is not None, SECONDS, f"nobody comes to {self._step}")
        assert self._restart is not None
        await self._restart
        self._restart = None

    async def _kill(self) -> None:
        if self._amid:
            await asyncio.sleep(self._chance.uniform(0, SOON_SECONDS))
        self.kill()
        self.launch()
        await self.ready()


class Clients:
    """Whoever asks for responses, and knows what was said and used."""

    def __init__(self, client: AsyncOpenAI, conversation: str) -> None:
        self._client, self.conversation = client, conversation
        self.asked: list[str] = []
        """What was said in the conversation."""
        self.ids: set[str] = set()
        self.tokens = 0
        self.unstored = 0
        """How many responses were not stored."""

    async def ask(self, how: str) -> None:
        """Ask for a response, which is complete, and ask again with its key: it is the same."""
        words, key = f"{self.tokens}. Count to 5.", {"Idempotency-Key": f"{self.tokens}"}
        more: dict[str, Any] = {"store": how != "unstored"}
        if how.startswith("in "):
            more |= {"conversation": self.conversation, "background": how == "in the background"}
            self.asked.append(words)
        create = self._client.responses.create
        first = await create(model=MODEL, input=words, **more, extra_headers=key if more["store"] else {})
        if not more["store"]:
            self.unstored += 1
            ended = first
        else:
            ended = await until(
                lambda: self._client.responses.retrieve(first.id), SECONDS, wanted=lambda found: found.usage is not None
            )
            assert (await create(model=MODEL, input=words, **more, extra_headers=key)).id == first.id
            self.ids.add(first.id)
        assert (ended.status, ended.output_text) == ("completed", ANSWERED[1])
        assert ended.usage is not None
        self.tokens += ended.usage.total_tokens


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [0, pytest.param(4, marks=pytest.mark.full)], ids=["once", "again and again"])
async def test_a_store_that_is_killed_at_any_step_of_a_response_keeps_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    steps = [(how, step) for how, steps in STEPS.items() for step in steps]
    deaths = [(number % 2 == 1, each) for number, each in enumerate(steps)]  # amid a step, or before it
    deaths += [*product((False, True), steps)] * rounds
    outages = Outages(tmp_path)
    outages.launch()
    try:
        await outages.ready()
        monkeypatch.setattr(app, "open_service", lambda *given: watched(open_service(*given), outages.at))
        settings = load_settings(redis_url=outages.url, tenant_limits=LIMITS, **PATIENT)
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            clients = Clients(client, (await client.conversations.create()).id)
            for amid, (how, step) in deaths:
                outages.order(step, amid=amid)
                try:
                    await clients.ask(how)
                    await outages.over()
                except Exception as error:
                    error.add_note(f"{how}, {step}, {amid=}")
                    raise
            told = await said(client, clients.conversation)
        assert told == [turn for each in clients.asked for turn in (("user", each), ANSWERED)]
        async with opened(settings, WatchedEngine(TOKENS_PER_SECOND)) as service, Aftermath(settings) as aftermath:
            await later(service)
            await tally_of(service).settle()
            assert await used_this_month(service) == clients.tokens
            (used,) = (await aftermath.used()).values()
            assert used.requests == len(clients.ids) + clients.unstored
            assert used.input_tokens + used.output_tokens == clients.tokens
            assert await aftermath.ids() == clients.ids
            assert await aftermath.left_over(timed=False) == []
            assert await aftermath.complaints() == []
    finally:
        outages.kill()
