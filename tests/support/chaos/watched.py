"""A service whose jobs, conversations, turns, keyed requests, tools and containers tell of each step, before and after.

Whoever listens may end the process there, or the store. The service knows no such step. What is one script in the store
is one step here: a turn is appended, its conversation moved to it and let go of by `adding`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from service.api.outcome import HostedCall, Outcome
from service.harmony.tokens import CALL, unpack
from service.responses.output.journal import decode_sampled
from service.responses.service import Service
from service.sandbox.port import Cell
from service.settings.mcp import Connection
from service.tenants.usage import Tally
from service.tools.containers import Containers, Opened
from service.tools.toolbox import Toolbox, ToolRun
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import LEVELS, Claim, Finished, Job, JobLimits, Lease, Steer
from store.limits import Admission, Limits
from store.redis import scripts
from store.redis.connection import Server
from store.turn import Chain, Turn

At = Callable[[str], Awaitable[None]]
"""Told of a step."""


class WatchedJobs(Jobs):
    """Jobs that tell."""

    def __init__(self, history: ConversationHistoryStore, limits: JobLimits, at: At) -> None:
        super().__init__(history, limits)
        self._at = at

    async def submit(self, *given: Any, **more: Any) -> None:
        await self._at("submitting")
        await super().submit(*given, **more)
        await self._at("submitted")

    async def claim(self, shard: int, most: int, level: int = LEVELS - 1) -> Claim:
        claim = await super().claim(shard, most, level)
        if claim.jobs:
            await self._at("claimed")
        return claim

    async def write(self, lease: Lease, entry: Entry, **more: Any) -> None:
        part = decode_sampled(entry.blob)
        await self._at("writing")
        if CALL in unpack(part.tokens):
            await self._at("noting a call")
        if part.outcomes:
            await self._at("keeping an outcome")
        await super().write(lease, entry, **more)
        await self._at("written")
        if part.outcomes:
            await self._at("kept an outcome")

    async def finish(self, lease: Lease, turn: Turn, entry: Entry, **more: Any) -> Finished:
        await self._at("finishing")
        finished = await super().finish(lease, turn, entry, **more)
        await self._at("finished")
        return finished

    async def steer(self, tenant: str, id: str, steer: Steer) -> None:
        await self._at("steering")
        await super().steer(tenant, id, steer)
        await self._at("steered")

    async def steers(self, lease: Lease) -> list[Steer]:
        steers = await super().steers(lease)
        await self._at("told of steers")
        return steers

    async def succeed(self, *given: Any, **more: Any) -> Finished:
        await self._at("succeeding")
        finished = await super().succeed(*given, **more)
        await self._at("succeeded")
        return finished

    async def hand_back(self, lease: Lease, **more: Any) -> None:
        await self._at("handing back")
        await super().hand_back(lease, **more)
        await self._at("handed back")

    async def cancel(self, tenant: str, id: str) -> Job | None:
        await self._at("cancelling")
        job = await super().cancel(tenant, id)
        await self._at("cancelled")
        return job


class WatchedConversations(Conversations):
    """Conversations that tell."""

    def __init__(self, history: ConversationHistoryStore, at: At) -> None:
        super().__init__(history)
        self._at = at

    async def create(self, *given: Any, **more: Any) -> None:
        await self._at("creating")
        await super().create(*given, **more)
        await self._at("created")

    async def branch(self, tenant: str, source: str, pin: str) -> Chain:
        chain = await super().branch(tenant, source, pin)
        await self._at("branched")
        return chain

    async def hold(self, tenant: str, id: str, hold: str, seconds: float) -> None:
        await self._at("holding")
        await super().hold(tenant, id, hold, seconds)
        await self._at("held")

    async def chain(self, tenant: str, id: str) -> Chain:
        chain = await super().chain(tenant, id)
        await self._at("read")
        return chain

    async def advance(self, tenant: str, id: str, turn: Turn, *, hold: str) -> None:
        await self._at("adding")
        await super().advance(tenant, id, turn, hold=hold)
        await self._at("added")

    async def release(self, tenant: str, id: str, hold: str) -> None:
        await self._at("releasing")
        await super().release(tenant, id, hold)
        await self._at("released")


def _tell_of_turns(history: ConversationHistoryStore, at: At) -> None:
    """Have a store tell when a turn is appended that is added to no conversation."""
    append = history.append

    async def telling(*given: Any, **more: Any) -> None:
        await at("appending")
        await append(*given, **more)
        await at("appended")

    history.append = telling


def _tell_of_tally(tally: Tally, at: At) -> None:
    """Have a tally tell when it counts what isn't stored."""
    count = tally.count

    async def telling(*given: Any) -> None:
        await at("counting")
        await count(*given)
        await at("counted")

    tally.count = telling


def _tell_of_limits(limits: Limits, at: At) -> None:
    """Have limits tell when work is let begin, and when it is settled."""
    admit, settle = limits.admit, limits.settle_all

    async def admitting(*given: Any, **more: Any) -> Admission:
        await at("admitting")
        admission = await admit(*given, **more)
        await at("admitted")
        return admission

    async def settling(*given: Any) -> int:
        await at("settling")
        settled = await settle(*given)
        await at("settled")
        return settled

    limits.admit, limits.settle_all = admitting, settling


def _tell_of_calls(toolbox: Toolbox, at: At) -> None:
    """Have tools tell when one is called, and when it has answered."""
    begin = toolbox.run

    def run(tenant: str, connections: Sequence[Connection] = ()) -> ToolRun:
        calls = begin(tenant, connections)
        make = calls.call

        async def telling(call: HostedCall) -> Outcome:
            await at("calling")
            outcome = await make(call)
            await at("called")
            return outcome

        calls.call = telling
        return calls

    toolbox.run = run


def _tell_of_scripts(server: Server, at: At) -> None:
    """Have the store tell when an approval is used up; when a request with a key is taken, named and ended; and when it
    begins a call that may have an effect.
    """
    run = server.run

    async def running(work: Any, *given: Any, **more: Any) -> Any:
        before, after = _steps_of(work, more)
        if before:
            await at(before)
        result = await run(work, *given, **more)
        if after:
            await at(after)
        return result

    server.run = running


def _steps_of(work: object, values: Mapping[str, Any]) -> tuple[str, str]:
    """The steps before and after a script with these values; empty ones are not told of."""
    if work is scripts.take_keyed:
        return "taking", "taken"
    if work is scripts.use_up and values["run"]:
        return "using up", "used up"
    if work is scripts.keep_keyed:
        if values["named"]:
            return "naming", "named"
        return ("ending", "ended") if values["ends"] else ("beginning a call" if values["calls"] else "", "")
    return "", ""


def _tell_of_containers(containers: Containers, at: At) -> None:
    """Have containers tell when the session of one is opened, when the store knows of it, and when code runs in it."""
    sandbox = containers.sandbox
    open_session, open_container, run_cell = sandbox.open, containers.open, sandbox.run

    async def opening_session(*given: Any, **more: Any) -> Any:
        await at("opening")
        opened = await open_session(*given, **more)
        await at("opened")
        return opened

    async def opening_container(*given: Any, **more: Any) -> Opened:
        opened = await open_container(*given, **more)
        await at("recorded")
        return opened

    async def running(*given: Any) -> Cell:
        await at("running")
        cell = await run_cell(*given)
        await at("ran")
        return cell

    sandbox.open, containers.open, sandbox.run = opening_session, opening_container, running


def watched(service: Service, at: At) -> Service:
    """The service, whose jobs, conversations, turns, keyed requests, tools and containers tell."""
    if service.toolbox.containers is not None:
        _tell_of_containers(service.toolbox.containers, at)
    _tell_of_turns(service.store, at)
    _tell_of_tally(service.tenants.tally, at)
    _tell_of_limits(service.tenants.limiter.limits, at)
    _tell_of_calls(service.toolbox, at)
    _tell_of_scripts(service.store.server, at)
    return msgspec.structs.replace(
        service,
        jobs=WatchedJobs(service.store, service.jobs.limits, at),
        conversations=WatchedConversations(service.store, at),
    )
