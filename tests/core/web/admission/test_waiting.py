"""Waiting for a slot: whose turn it is has it, and whoever stops waiting, at whatever moment, takes none along."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import ApiError
from service.metrics.counters import Metrics, make_metrics
from service.web.admission.queue import Bill
from service.web.admission.slots import ASIDE, Admission

SOON, NEVER = 0.05, 600.0
"""How long a request waits: for a moment, or for as long as it takes."""

SLOTS, KEPT, QUEUED = 4, 1, 6


def admission(
    *, requests: int = 1, queued: int = 8, seconds: float = NEVER, several: bool = False, metrics: Metrics | None = None
) -> Admission:
    return Admission(
        metrics or make_metrics(),
        requests=requests,
        followers=1,
        bodies=100,
        queued=queued,
        queue_seconds=seconds,
        several=lambda: several,
    )


class Client:
    """A request of a tenant, which keeps its slot until it is ended."""

    def __init__(self, gate: Admission, tenant: str = "acme") -> None:
        self.tenant = tenant
        self.hang_up: Callable[[], None] | None = None
        """What is called when it disconnects, as long as anybody wants to know."""
        self.waited: list[float] = []
        self.has_slot = False
        self.over = asyncio.Event()
        self.served: tuple[int, int] = (0, 0)
        self.task = asyncio.create_task(self._ask(gate))

    async def _ask(self, gate: Admission) -> None:
        def tell(call: Callable[[], None] | None) -> None:
            self.hang_up = call

        with await gate.slot_in_line(self.tenant, self.waited.append, tell) as slot:
            self.has_slot = True
            await self.over.wait()
            slot.served(*self.served)

    async def end(self) -> None:
        self.over.set()
        await asyncio.wait([self.task])
        await settled()

    async def refusal(self) -> ApiError:
        with pytest.raises(ApiError) as refused:
            await self.task
        return refused.value


async def settled() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def clients(gate: Admission, *tenants: str) -> list[Client]:
    found: list[Client] = []
    for tenant in tenants:
        found.append(Client(gate, tenant))
        await settled()
    return found


async def test_who_waits_for_too_long_is_told_for_how_long_and_when_to_come_back() -> None:
    metrics = make_metrics()
    gate = admission(seconds=SOON, metrics=metrics)
    first, second = await clients(gate, "acme", "acme")
    refused = await second.refusal()
    assert refused.status == 503
    assert "serves 1 requests already. No slot was free within 0.05 s." in refused.message
    assert "HARMONIUM_MAX_CONCURRENT_REQUESTS" in refused.message
    assert refused.retry_after is not None
    assert second.waited[0] >= SOON
    assert metrics.refused.labels("requests")._value.get() == 1  # pyright: ignore[reportPrivateUsage]
    await first.end()
    (third,) = await clients(gate, "acme")
    assert third.has_slot
    await third.end()


async def test_no_more_wait_than_may_and_no_tenant_takes_all_places() -> None:
    gate = admission(queued=8, several=True, requests=2)
    for _ in range(2):  # the second time as the first: all places were given back
        held = await clients(gate, *["acme"] * 9)
        assert [each.task.done() for each in held] == [False] * 8 + [True], "one slot, seven places, and none left"
        refused = await held.pop().refusal()
        assert "7 wait already. Try again in a moment, or raise HARMONIUM_MAX_CONCURRENT_REQUESTS." in refused.message
        held += await clients(gate, "globex")
        assert not held[-1].task.done()
        for each in held:
            each.task.cancel()
        await asyncio.wait([each.task for each in held])
        assert await gate.wait_until_empty(0)


async def test_what_asks_no_model_never_waits_and_has_slots_of_its_own() -> None:
    gate = admission()
    first, second = await clients(gate, "acme", "acme")
    taken = [gate.slot("acme") for _ in range(ASIDE)]
    for each in taken:
        each.__enter__()
    with pytest.raises(ApiError, match="serves 8 additional requests that need no model"), gate.slot("acme"):
        pass
    for each in taken:
        each.__exit__(None, None, None)
    await first.end()
    assert second.has_slot, "what asks no model was in nobody's way"
    await second.end()


async def test_who_comes_to_a_service_that_stops_does_not_wait() -> None:
    gate = admission()
    (first,) = await clients(gate, "acme")
    gate.stop()
    (late,) = await clients(gate, "acme")
    assert late.task.done()
    assert (await late.refusal()).status == 503
    await first.end()


async def test_the_bill_of_a_request_is_settled_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[float] = []
    monkeypatch.setattr(Bill, "settle", lambda _, seconds: settled.append(seconds))
    (client,) = await clients(admission(), "acme")
    assert settled == []
    await client.end()
    assert len(settled) == 1


class Step(NamedTuple):
    """What happens next: to which of those that it may happen to, or whose request comes."""

    what: str
    which: int
    tenant: str


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["ask", "ask", "ask", "end", "end", "cancel", "hang up", "end and cancel"]),
        st.integers(0, 99),
        st.sampled_from("abc"),
    ),
    max_size=40,
)


class World:
    """An admission whose rules are checked after each step."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.gate = admission(requests=SLOTS, queued=QUEUED, several=True, metrics=self.metrics)
        self.asked: list[Client] = []
        self.lines = {tenant: deque[Client]() for tenant in "abc"}

    @property
    def serving(self) -> list[Client]:
        return [each for each in self.asked if each.has_slot and not each.task.done()]

    @property
    def waiting(self) -> list[Client]:
        return [each for each in self.asked if not each.has_slot and not each.task.done()]

    async def do(self, step: Step) -> None:
        serving, waiting = self.serving, self.waiting
        if step.what == "ask":
            client = Client(self.gate, step.tenant)
            client.served = (step.which, step.which)
            self.asked.append(client)
            self.lines[step.tenant].append(client)
        if step.what.startswith("end") and serving:
            serving[step.which % len(serving)].over.set()
        if step.what == "end and cancel" and serving:
            await asyncio.sleep(0)  # so that a slot is on its way to one that waits
        if step.what.endswith("cancel") and waiting:
            waiting[step.which % len(waiting)].task.cancel()
        if step.what == "hang up" and waiting:
            hang_up = waiting[step.which % len(waiting)].hang_up
            assert hang_up is not None
            hang_up()
        await settled()

    def check(self) -> None:
        assert len(self.serving) <= SLOTS
        assert len(self.waiting) <= QUEUED
        assert len(self.serving) >= SLOTS - KEPT or not self.waiting, "a slot is free for anybody, and somebody waits"
        assert self.metrics.registry.get_sample_value("harmonium_requests_waiting") == len(self.waiting)
        for line in self.lines.values():
            there = [each for each in line if not each.task.done()]
            begun = [each.has_slot for each in there]
            assert begun == sorted(begun, reverse=True), "first in, first out"

    async def end(self) -> None:
        for each in self.asked:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in self.asked), return_exceptions=True)
        assert await self.gate.wait_until_empty(0)
        fresh = await clients(self.gate, *"aaaab")
        assert [each.has_slot for each in fresh] == [True, True, True, False, True]
        for each in fresh:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in fresh), return_exceptions=True)


METRICS = make_metrics()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_happens_no_slot_is_lost_and_none_is_free_while_somebody_may_have_it(steps: list[Step]) -> None:
    async def play() -> None:
        world = World(METRICS)
        for step in steps:
            await world.do(step)
            world.check()
        await world.end()

    asyncio.run(play())
