"""What keys and limits cost a create, and whether many keys and projects in the store change that.

Applications of one process, over stores of their own and the demo engine. By turns each kind of request gets the same
small create, as ASGI has it, and what the event loop's thread took of the CPU for it is noted. A difference is the
median of those to the neighbour, so whatever else the machine does is in both. The commands of some creates apart are
watched: a round trip that a create waits for is told from what is settled beside it by the name of the script.
"""

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import cycle
from statistics import median
from typing import Any, NamedTuple

import uvloop
from msgspec.structs import asdict

from bench._rig import Server, running
from bench.attacks import SMALL
from bench.traces import App, Request, ask, started
from service.responses.service import open_directory, open_store
from service.settings.settings import load_settings
from service.tenants.audit import COMMAND_LINE, Actor
from service.tenants.directory import Directory, Wish
from service.tenants.limits import ALL_MODELS, Limit
from service.web.app import create_app
from store.history.history import ConversationHistoryStore
from store.redis import scripts

REQUESTS = 1_200
"""The creates of each kind."""

WARM = 200
WATCHED = 100
"""Creates whose commands are counted."""

TARGET_US = 100.0
"""The most CPU that a create with a key and limits may take beyond an open one with a bare round trip."""

TARGET_TRIPS = 1.0
"""The most round trips that it may wait for beyond those of an open one."""

SAME = 0.05
"""By which share a create may take longer where there are many keys: what is left of noise."""

PROJECTS, KEYS_EACH = 1_000, 10
FILLED_AT_ONCE = 32
MONITOR_BYTES = 1 << 16
QUIET_SECONDS = 0.3
"""Commands beside requests have been sent by then."""

END = "no more is watched"
ASKED = re.compile(r'^\+[\d.]+ \[\d+ (?!lua)[^]]*] "(\w+)"(?: "([^"]*)")?', re.MULTILINE)
"""A command in what MONITOR tells, and its first argument; none that a script sent."""

ENOUGH = 1_000_000_000
"""A limit that is never reached."""

BESIDE = {"settle_admitted"}
"""What no create waits for."""

PLENTY = Limit(max_requests_per_1_minute=ENOUGH, max_tokens_per_1_minute=ENOUGH)


class Kind(NamedTuple):
    """Creates of one kind: what serves them, its store, and the keys by turns; an empty one is none."""

    app: App
    redis: Server
    keys: Iterator[str]
    trip: ConversationHistoryStore | None = None
    """A store that is asked for an echo before each."""


class Found(NamedTuple):
    """Of a kind: the CPU µs of each create, and how often each command is sent for one."""

    us: list[float]
    sent: dict[str, float]

    @property
    def trips(self) -> float:
        """The round trips that a create waits for."""
        return sum(each for name, each in self.sent.items() if name not in BESIDE)


async def asked(kind: Kind) -> float:
    """Ask once; the CPU µs of this thread. Raises RuntimeError where it is refused."""
    request = Request("create", "POST", "/v1/responses", SMALL, next(kind.keys))
    began = time.thread_time()
    if kind.trip is not None:
        async with kind.trip.server.operation() as operation:
            await operation.command("ECHO", "")
    await ask(kind.app, request)
    return (time.thread_time() - began) * 1e6


async def taken(kinds: dict[str, Kind]) -> dict[str, Found]:
    """Ask by turns; what each kind took."""
    names, took = list(kinds), {name: list[float]() for name in kinds}
    for number in range(WARM + REQUESTS):
        at = number % len(names)
        for name in (*names[at:], *names[:at]):
            us = await asked(kinds[name])
            if number >= WARM:
                took[name].append(us)
    return {name: Found(took[name], await watched(kind)) for name, kind in kinds.items()}


async def watched(kind: Kind) -> dict[str, float]:
    """How often each command is sent for a create, scripts by their names."""
    names = {script.sha: script.name for script in scripts.ALL}
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(kind.redis.url.removeprefix("unix://"))
        monitor.sendall(b"MONITOR\r\n")
        monitor.recv(MONITOR_BYTES)
        for _ in range(WATCHED):
            await asked(kind)
        await asyncio.sleep(QUIET_SECONDS)
        kind.redis.ask("ECHO", END)
        told = b""
        while END.encode() not in told:
            told += monitor.recv(MONITOR_BYTES)
    sent: list[tuple[str, str]] = ASKED.findall(told.decode(errors="replace"))
    found = Counter(names.get(sha, command) for command, sha in sent)
    return {name: count / WATCHED for name, count in found.items() if count >= WATCHED / 20}


async def served(stack: AsyncExitStack, redis: Server, **changes: Any) -> App:
    """An application on a store, until the stack is closed."""
    settings = load_settings(redis_url=redis.url, worker=False, log_level="warning", **changes)
    return await stack.enter_async_context(started(create_app(settings)))


async def filled(redis: Server, projects: int, keys: int, limit: Limit | None = None) -> list[str]:
    """So many projects with so many keys each, all with this limit; the keys' values."""
    settings = load_settings(redis_url=redis.url)
    store = open_store(settings)
    directory, values = open_directory(settings, store), list[str]()
    left = iter(range(projects))

    async def make() -> None:
        for number in left:
            values.extend(await project(directory, number, keys, limit))

    await asyncio.gather(*(make() for _ in range(FILLED_AT_ONCE)))
    await store.close()
    return values


async def project(directory: Directory, number: int, keys: int, limit: Limit | None) -> list[str]:
    """A project with a service account and keys; their values."""
    actor, wish = Actor(COMMAND_LINE), Wish("key", limit=limit)
    made = await directory.create_project(actor, f"project {number}")
    if limit is not None:
        wished = {name: each for name, each in asdict(limit).items() if each is not None}
        await directory.limit(actor, made.id, ALL_MODELS, wished)
    account, first = await directory.create_account_with_key(actor, made.id, "app", wish)
    others = [await directory.create_key(actor, made.id, account.id, wish) for _ in range(keys - 1)]
    return [each.value for each in (first, *others)]


def table(found: dict[str, Found]) -> Found:
    """Print a row for each kind, beside the first; the most that one takes beyond that: µs, share, and round trips."""
    heads = ("CPU µs", "more", "ratio", "trips", "more")
    print(f"{'':34}" + "".join(f"{head:>9}" for head in heads) + "  commands")
    base = next(iter(found.values()))
    for name, each in found.items():
        commands = ", ".join(f"{command} {count:.2f}" for command, count in sorted(each.sent.items()))
        print(
            f"{name:34}{median(each.us):9.0f}{more(each, base):9.0f}{more(each, base) / median(base.us) + 1:8.3f}x"
            f"{each.trips:9.2f}{each.trips - base.trips:9.2f}  {commands}",
            flush=True,
        )
    return base


def more(found: Found, base: Found) -> float:
    """By how many µs of CPU a create takes longer."""
    return median(us - other for us, other in zip(found.us, base.us, strict=True))


async def cost() -> bool:
    """Print what keys and limits cost; whether that is no more than it may be."""
    with running("redis") as redis, running("redis") as other:
        store = open_store(load_settings(redis_url=redis.url))
        (keyed,) = await filled(other, 1, 1)
        (limited,) = await filled(other, 1, 1, PLENTY)
        async with AsyncExitStack() as stack:
            open_one, closed = await served(stack, redis), await served(stack, other, projects=True)
            found = await taken(
                {
                    "open": Kind(open_one, redis, cycle([""])),
                    "open, and a bare round trip": Kind(open_one, redis, cycle([""]), store),
                    "with a key": Kind(closed, other, cycle([keyed])),
                    "with a key and four limits": Kind(closed, other, cycle([limited])),
                }
            )
            await store.close()
    base, trip, most = table(found), found["open, and a bare round trip"], found["with a key and four limits"]
    return more(most, trip) <= TARGET_US and most.trips - base.trips <= TARGET_TRIPS


async def keys() -> bool:
    """Print what many keys and projects change; whether that is nothing."""
    with running("redis") as few, running("redis") as many:
        (alone,) = await filled(few, 1, 1, PLENTY)
        (among,) = await filled(many, 1, 1, PLENTY)
        others = await filled(many, PROJECTS - 1, KEYS_EACH, PLENTY)
        async with AsyncExitStack() as stack:
            one, other = await served(stack, few, projects=True), await served(stack, many, projects=True)
            found = await taken(
                {
                    "the only key": Kind(one, few, cycle([alone])),
                    "one of 10,000, in 1,000 projects": Kind(other, many, cycle([among])),
                    "another of them, not seen before": Kind(other, many, cycle(others)),
                }
            )
    base, among_many = table(found), found["one of 10,000, in 1,000 projects"]
    return more(among_many, base) <= SAME * median(base.us) and among_many.trips == base.trips


def rows(part: str) -> bool:
    """Print a part; whether it is as it should be."""
    return uvloop.run(cost() if part == "cost" else keys())
