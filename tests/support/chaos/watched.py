"""A service whose jobs, conversations, turns, keyed requests, tools and containers tell of each step, before and after.

Whoever listens may end the process there, or the store. The service knows no such step. What is one script in the store
is one step here: a turn is appended, its conversation moved to it and let go of by `adding`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from service.api.outcome import HostedCall, Outcome
from service.features.python.interpreter import containers_of
from service.harmony.tokens import CALL, unpack
from service.responses.output.journal import decode_sampled
from service.responses.service import Service
from service.tools.hosted import HostedRun, HostedTools
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import JobClaim, Lease
from store.redis import scripts
from store.redis.connection import Server
from tests.support.archive.steps import At
from tests.support.service.tenants import limits_in, tally_of

Steps = Mapping[str, tuple[str, str]]
"""The steps before and after each method; an empty one is not told of."""

JOBS: Steps = {
    "submit": ("submitting", "submitted"),
    "finish": ("finishing", "finished"),
    "steer": ("steering", "steered"),
    "steers": ("", "told of steers"),
    "succeed": ("succeeding", "succeeded"),
    "hand_back": ("handing back", "handed back"),
    "cancel": ("cancelling", "cancelled"),
}
CONVERSATIONS: Steps = {
    "create": ("creating", "created"),
    "branch": ("", "branched"),
    "hold": ("holding", "held"),
    "chain": ("", "read"),
    "advance": ("adding", "added"),
    "release": ("releasing", "released"),
}


def _tell(of: object, at: At, steps: Steps) -> None:
    """Have methods of something tell when they begin and end."""

    def telling(carry_out: Callable[..., Awaitable[Any]], before: str, after: str) -> Callable[..., Awaitable[Any]]:
        async def told(*given: Any, **more: Any) -> Any:
            if before:
                await at(before)
            result = await carry_out(*given, **more)
            if after:
                await at(after)
            return result

        return told

    for name, (before, after) in steps.items():
        setattr(of, name, telling(getattr(of, name), before, after))


def _tell_of_jobs(jobs: Jobs, at: At) -> None:
    """Have jobs tell; those that nobody claimed of nothing, and what is written by what it has."""
    _tell(jobs, at, JOBS)
    take, add = jobs.claim, jobs.write

    async def claim(*given: Any, **more: Any) -> JobClaim:
        claim = await take(*given, **more)
        if claim.jobs:
            await at("claimed")
        return claim

    async def write(lease: Lease, entry: LogEntry, **more: Any) -> None:
        part = decode_sampled(entry.blob)
        await at("writing")
        if CALL in unpack(part.tokens):
            await at("noting a call")
        if part.outcomes:
            await at("keeping an outcome")
        await add(lease, entry, **more)
        await at("written")
        if part.outcomes:
            await at("kept an outcome")

    jobs.claim, jobs.write = claim, write  # type: ignore[method-assign]


def _tell_of_calls(toolbox: HostedTools, at: At) -> None:
    """Have tools tell when one is called, and when it has answered."""
    begin = toolbox.run

    def run(tenant: str, connections: bytes = b"") -> HostedRun:
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


def watched(service: Service, at: At) -> Service:
    """The service, whose jobs, conversations, turns, keyed requests, tools and containers tell from now on."""
    containers = containers_of(service)
    if containers is not None:
        _tell(containers.sandbox, at, {"open": ("opening", "opened"), "run": ("running", "ran")})
        _tell(containers, at, {"open": ("", "recorded")})
    _tell_of_jobs(service.jobs, at)
    _tell(service.conversations, at, CONVERSATIONS)
    _tell(service.store, at, {"append": ("appending", "appended")})  # a turn that is added to no conversation
    _tell(tally_of(service), at, {"count": ("counting", "counted")})  # what isn't stored
    limits = limits_in(service)
    _tell(limits, at, {"admit": ("admitting", "admitted"), "settle_all": ("settling", "settled")})
    _tell_of_calls(service.toolbox, at)
    _tell_of_scripts(service.store.server, at)
    return service
