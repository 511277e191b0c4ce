"""Who waits for room where there are several servers: for the one that has its prefix cached, and for how long."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.names import ServerAddress
from service.engine.port import Generation, Sampling
from service.engine.servers.admission import Admission, Held, Reach, Ticket
from service.engine.servers.choosing import ALONE, APART, Choosing, Home
from service.engine.servers.kind import Terms
from service.engine.servers.pool import Pool
from service.engine.servers.server import Server
from service.engine.vllm.servers import Vllm
from service.harmony.tokens import STOPS
from tests.support.engine.connected import CARD, ask, connected, hold, scripted
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.engine.standin import Standin, standing_in
from tests.support.engine.watched import WatchedHttp
from tests.support.waiting import until

NEVER, AT_ONCE = 1000.0, 0.0
ROOM = 1000
LONG = [1] * 600
"""A prompt of which a server has room for one."""

# --- the lines, against a model ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Asker:
    """Somebody who asks for a place, and what becomes of it."""

    ticket: Ticket
    task: "asyncio.Task[Held | None]"

    @property
    def held(self) -> Held | None:
        return self.task.result() if self.task.done() and not self.task.cancelled() else None


class Lines:
    """An admission before servers of which each has ROOM, and what should hold of it at any time."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = list(servers)
        self.up = list(servers)
        self.admission = Admission(10_000, lambda: self.up, self._give)
        self.askers: list[Asker] = []

    def _give(self, ticket: Ticket, servers: Sequence[Server], home: Server | None) -> Held | None:
        free = [server for server in servers if self.fits(ticket, server)]
        if not free or (home is not None and home not in free):
            return None
        return Held(home or free[0], ticket.need, 1, self.admission)

    def fits(self, ticket: Ticket, server: Server) -> bool:
        """Whether it has room for it."""
        return not server.running or server.tokens + ticket.need.tokens <= ROOM

    async def ask(
        self, size: int, home: int | None, tenant: str = "a", *, alone: float = NEVER, apart: float = NEVER
    ) -> Asker:
        asked = Generation("one", [1] * size, Sampling(1, stop_ids=STOPS), tenant=tenant)
        ticket = self.admission.ticket(asked, ROOM * 10)
        if home is not None:
            ticket.home = Home(self.servers[home], 0, size)
        ticket.wait_for_home(alone, apart)
        asker = Asker(ticket, asyncio.create_task(self._ask(ticket)))
        self.askers.append(asker)
        await settled()
        return asker

    async def _ask(self, ticket: Ticket) -> Held | None:
        if (held := self.admission.now(ticket)) is not None or not self.admission.hopes(ticket):
            return held
        return await self.admission.wait(ticket)

    @property
    def waiting(self) -> list[Asker]:
        return [asker for asker in self.askers if not asker.task.done()]

    @property
    def running(self) -> list[Asker]:
        return [asker for asker in self.askers if asker.held is not None]

    async def end(self, asker: Asker) -> None:
        """It gives up, or has ended."""
        self.askers.remove(asker)
        if asker.held is not None:
            asker.held.release()
        asker.task.cancel()
        await settled()

    async def has(self, servers: Sequence[Server]) -> None:
        """These are up from now on."""
        self.up = list(servers)
        self.admission.look()
        await settled()

    async def woken(self) -> None:
        """Return once whoever was given a place has heard of it: a timer may give one between two rounds."""
        for _ in range(100):
            if self.admission.waiting == len(self.waiting):
                break
            await asyncio.sleep(0)

    def check(self) -> None:
        """No server has too much, and nobody waits who is first in a line where there is room."""
        assert self.admission.waiting == len(self.waiting)
        for server in self.servers:
            there = [asker for asker in self.running if asker.held and asker.held.server is server]
            assert server.tokens == sum(asker.ticket.need.tokens for asker in there)
            assert (server.tokens <= ROOM) or server.running == 1
        for server in self.up:
            line = sorted(self._line(server), key=lambda each: each[0])
            assert not line or not self.fits(line[0][1], server), "it is first, and there is room"
        assert self.up or not self.waiting

    def _line(self, server: Server) -> list[tuple[Any, Ticket]]:
        """Who stands in line for a server, in their order."""
        line: list[tuple[Any, Ticket]] = []
        others: list[tuple[Any, Ticket]] = []
        for ticket in (asker.ticket for asker in self.waiting):
            has = sum(each.ticket.need.tokens for each in self.running if each.ticket.need.tenant == ticket.need.tenant)
            homeless = ticket.home is None or ticket.home.server not in self.up
            if homeless or (ticket.home and ticket.home.server is server):
                line.append(((has, ticket.number), ticket))
            elif ticket.reach is Reach.ANY:
                line.append(((has, ticket.late), ticket))
            elif ticket.reach is Reach.IDLE:
                others.append(((has, ticket.number), ticket))
        return line or others


async def settled() -> None:
    """All that can go on has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def lines(count: int = 2) -> AsyncIterator[Lines]:
    """An admission before so many servers, which are asked nothing."""
    contact = Pool(keeps=True, connect_seconds=1)
    places = [ServerAddress(f"http://{number}", f"http://{number}") for number in range(count)]
    servers = [Server(Vllm(), place, contact, wanted=lambda: Terms("", 0), connect_seconds=1) for place in places]
    found = Lines(servers)
    try:
        yield found
        for asker in list(found.askers):
            await found.end(asker)
    finally:
        await contact.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"),
            st.integers(1, 1200),
            st.sampled_from([None, 0, 1, 2]),
            st.sampled_from("ab"),
            st.sampled_from([AT_ONCE, 0.001, NEVER]),
            st.sampled_from([0.002, NEVER]),
        ),
        st.tuples(st.sampled_from(["end", "give up"]), st.integers(0, 20)),
        st.tuples(st.just("up"), st.sets(st.integers(0, 2))),
        st.tuples(st.just("time")),
    ),
    max_size=40,
)


@given(STEPS)
async def test_whatever_happens_nobody_waits_without_need_and_all_are_served(steps: list[Any]) -> None:
    async with lines(3) as found:
        for name, *said in steps:
            match name:
                case "ask":
                    size, home, tenant, alone, apart = said
                    await found.ask(size, home, tenant, alone=alone, apart=apart)
                case "up":
                    await found.has([found.servers[number] for number in sorted(said[0])])
                case "time":
                    await asyncio.sleep(0.003)
                case _:
                    some = found.running if name == "end" else found.waiting
                    if some:
                        await found.end(some[said[0] % len(some)])
            await found.woken()
            found.check()
        await found.has(found.servers)
        while found.running:
            await found.end(found.running[0])
            await found.woken()
            found.check()
        assert (found.waiting, [server.running for server in found.servers]) == ([], [0, 0, 0])


# --- how long it is worth it ------------------------------------------------------------------------------------------


def home_of(tokens: int) -> Any:
    """One that has so many tokens; which server it is nobody asks."""
    return Home(None, 0, tokens)  # type: ignore[arg-type]


def test_a_home_is_waited_for_as_long_as_computing_would_take() -> None:
    choosing = Choosing()
    for tokens in (100, 300, 900):
        choosing.note_computed(tokens, 0.5 + tokens / 1000)
    assert choosing.patience(home_of(4000), 30) == pytest.approx((4, 30 * APART))
    assert choosing.patience(home_of(9000), 30) == pytest.approx((9, 9))
    assert choosing.patience(home_of(90_000), 30) == pytest.approx((30 * ALONE, 30 * ALONE))
    assert choosing.patience(None, 30) == (0, 30 * APART)


@pytest.mark.parametrize("known", [[], [(5, 1.0)], [(5, 1.0), (5, 2.0)], [(5, 2.0), (9, 1.0)]])
def test_where_nobody_knows_how_long_computing_takes_idle_servers_are_taken(known: list[tuple[int, float]]) -> None:
    choosing = Choosing()
    for each in known:
        choosing.note_computed(*each)
    assert choosing.patience(home_of(4000), 30) == (0, 30 * APART)


# --- the same before servers ------------------------------------------------------------------------------------------


@asynccontextmanager
async def full(
    compute_seconds: float, waiting: int = 10
) -> AsyncIterator[tuple[WatchedHttp, Standin, Standin, list[Any]]]:
    """An engine before two servers with a long generation each, of which the first made the response "first"; and what
    ends these.
    """
    async with (
        standing_in(scripted(), room=ROOM) as one,
        standing_in(scripted(), room=ROOM) as two,
        connected(one, two, wait_seconds=60, waiting=waiting) as engine,
    ):
        one.compute_seconds = two.compute_seconds = compute_seconds
        await ask(engine, id="short")
        await ask(engine, id="first", prompt=LONG, response="first")
        home, other = (one, two) if "first" in asked(one) else (two, one)
        for server in (one, two):
            server.compute_seconds = 0
            server.engine = ScriptedEngine(CARD, [[5], Stall()])
        held = [await hold(engine, id="home", prompt=LONG, continues="first")]
        held.append(await hold(engine, id="other", prompt=[2] * 600))
        for server in (one, two):
            server.engine = scripted()
        yield engine, home, other, held
        for task in held:
            task.cancel()
        await asyncio.wait(held)


def continued(engine: WatchedHttp) -> "asyncio.Task[Any]":
    """One that goes on from the first response."""
    return asyncio.create_task(ask(engine, id="next", prompt=LONG, continues="first", response="next"))


def asked(server: Standin) -> list[str]:
    return [each.headers["x-request-id"] for each in server.generations]


async def test_a_conversation_waits_for_the_server_that_has_its_prefix() -> None:
    async with full(0.002) as (engine, home, other, held):
        task = continued(engine)
        await until(lambda: engine.waiting == 1)
        held[1].cancel()
        await until(lambda: not other.running)
        assert engine.waiting == 1
        held[0].cancel()
        await task
        assert asked(home)[-1] == "next"


async def test_a_conversation_takes_an_idle_server_once_waiting_costs_more() -> None:
    async with full(0.0002) as (engine, _, other, held):
        held[1].cancel()
        await continued(engine)
        assert asked(other)[-1] == "next"


async def test_a_conversation_that_begins_takes_the_first_room() -> None:
    async with full(0.002) as (engine, _, other, held):
        task = asyncio.create_task(ask(engine, id="new", prompt=LONG, response="new", affinity="new"))
        await until(lambda: engine.waiting == 1)
        held[1].cancel()
        await task
        assert asked(other)[-1] == "new"


async def test_who_waits_for_a_server_that_dies_goes_elsewhere() -> None:
    async with full(0.002) as (engine, home, other, held):
        task = continued(engine)
        await until(lambda: engine.waiting == 1)
        held[1].cancel()
        await until(lambda: not other.running)
        await home.die()
        await task
        assert asked(other)[-1] == "next"


async def test_where_no_more_may_wait_an_idle_server_is_taken_at_once() -> None:
    async with full(0.002, waiting=0) as (engine, _, other, held):
        held[1].cancel()
        await until(lambda: not other.running)
        await continued(engine)
        assert asked(other)[-1] == "next"
