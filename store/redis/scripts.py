"""The Lua scripts as typed functions: `await APPEND(server, node=…, digits=…)` runs lua/append.lua.

A script is declared by a function without a body. Its parameters become locals of the Lua with the same
names: those marked `Key` come from KEYS, the rest from ARGV, an `int` as a number. So no script counts ARGV[7];
tests/store/redis/test_scripts.py compares a script's head comment with its declaration.

Never pass None (Redis would get the word "None"), and never write a script that can't be run twice: after a
lost reply the same call is sent again.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Any, Generic, ParamSpec, get_type_hints

from redis.exceptions import NoScriptError

from store.keys import Key
from store.redis.connection import Argument, Operation

P = ParamSpec("P")

Reply = list[bytes]
"""A script's result: a word for what happened, then the details."""

_LUA = files("store.redis").joinpath("lua")

_STRICT = "#!lua"
_ALLOW_OUT_OF_MEMORY = "#!lua flags=allow-oom"
_READ_ONLY = "#!lua flags=allow-oom,no-writes"
"""The first line of a script that a server without memory refuses before it does anything, of one that may run then,
and of one that the server permits no write. Redis 7.0 and newer and every Valkey know them."""


class Script(Generic[P]):
    """One Lua script: its declared names, its source with those names bound, and how to run it."""

    def __init__(self, declaration: Callable[P, None], includes: tuple[str, ...], flags: str) -> None:
        self.name = declaration.__name__
        hints = get_type_hints(declaration)
        names = list(inspect.signature(declaration).parameters)
        self.keys = tuple(name for name in names if hints[name] is Key)
        self.arguments = tuple(name for name in names if hints[name] is not Key)
        self._numbers = frozenset(name for name in names if hints[name] is int)
        self.includes = includes
        self._flags = flags

    @cached_property
    def source(self) -> str:
        """The Lua as the server gets it: its flags, the locals on one line, the shared functions, the script itself."""
        bound = [f"local {name} = KEYS[{i}]" for i, name in enumerate(self.keys, 1)]
        for i, name in enumerate(self.arguments, 1):
            value = f"tonumber(ARGV[{i}])" if name in self._numbers else f"ARGV[{i}]"
            bound.append(f"local {name} = {value}")
        return "\n".join([self._flags, "; ".join(bound), *(lua(part) for part in self.includes), lua(self.name)])

    @cached_property
    def sha(self) -> str:
        """The name by which the server knows the script."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, operation: Operation, *args: P.args, **values: P.kwargs) -> Awaitable[Reply]:
        """Run the script. Raises TypeError for a value that is missing, unknown or None."""
        if args or len(values) != len(self.keys) + len(self.arguments):
            raise TypeError(f"{self.name} takes {', '.join(self.keys + self.arguments)} by name")
        return self._run(operation, [self._value(values, name) for name in self.keys + self.arguments])

    def _value(self, values: dict[str, Any], name: str) -> Argument:
        value = values.get(name)
        if value is None:
            raise TypeError(f"{self.name} needs a value for {name}, not None")
        return value

    async def _run(self, operation: Operation, values: list[Argument]) -> Reply:
        try:
            return await operation.command("EVALSHA", self.sha, len(self.keys), *values)
        except NoScriptError:  # a server that was restarted, flushed or failed over; EVAL also loads what it runs
            return await operation.command("EVAL", self.source, len(self.keys), *values)


def lua(name: str) -> str:
    """The text of lua/NAME.lua."""
    return _LUA.joinpath(f"{name}.lua").read_text()


def script(
    *includes: str, out_of_memory: bool = False, read_only: bool = False
) -> Callable[[Callable[P, None]], Script[P]]:
    """Make the script lua/NAME.lua of a declaration called NAME, after the shared lua/INCLUDE.lua files.

    One that adds next to nothing says `out_of_memory`: it also runs on a server without memory, so that what is stored
    can be read, and deleted to make room. One that is `read_only` runs then, too.
    """
    flags = _READ_ONLY if read_only else _ALLOW_OUT_OF_MEMORY if out_of_memory else _STRICT

    def declare(declaration: Callable[P, None]) -> Script[P]:
        return Script(declaration, includes, flags)

    return declare


_REMOVAL = ("names", "clock", "idle", "pins", "usage", "logs", "removal")
"""The parts of scripts that remove turns."""

_ADDING = (*_REMOVAL, "walk", "eviction", "adding")
"""The parts of scripts that add a turn."""

_LOGGING = ("entries", "log_room")
"""The further parts of scripts that make room for events."""

_JOBS = ("names", "clock", "pins", "queueing")
"""The parts of scripts that move jobs."""


@script("clock", "idle", "pins", "walk", out_of_memory=True)
def chain(
    *,
    node: Key,
    pins: Key,
    clock: Key,
    leaves: Key,
    trees: Key,
    nodes: str,
    runs: str,
    tenant: str,
    tip: str,
    pin: str,
    pin_ms: int,
    max_depth: int,
    max_messages: int,
    max_bytes: int,
    max_held: int,
    idle_us: int,
) -> None: ...


@script("clock", "idle", "walk", out_of_memory=True)
def lineage(*, node: Key, trees: Key, nodes: str, tenant: str, digits: str, idle_us: int) -> None: ...


@script("clock", "idle", out_of_memory=True)
def touch(
    *, node: Key, job: Key, clock: Key, leaves: Key, trees: Key, tenant: str, digits: str, idle_us: int
) -> None: ...


@script(*_ADDING)
def append(
    *,
    node: Key,
    messages: Key,
    response: Key,
    clock: Key,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    tenant: str,
    digits: str,
    parent: str,
    pin: str,
    status: str,
    continuable: str,
    digest: str,
    added: int,
    room: int,
    max_depth: int,
    max_responses: int,
    max_trees: int,
    max_bytes: int,
    idle_us: int,
    budget: int,
    messages_blob: bytes,
    response_blob: bytes,
) -> None: ...


@script("walk", out_of_memory=True)
def unpin(*, node: Key, pins: Key, nodes: str, runs: str, digits: str, pin: str) -> None: ...


@script("names", "clock", "idle", "pins", "usage", "walk", "logs", out_of_memory=True)
def forget(
    *,
    node: Key,
    messages: Key,
    response: Key,
    pins: Key,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    tenant: str,
    digits: str,
    token: str,
    idle_us: int,
    erase: str,
    no_messages: bytes,
) -> None: ...


@script("clock", "idle", out_of_memory=True)
def abandon(*, node: Key, trees: Key, nodes: str, tenant: str, token: str, idle_us: int) -> None: ...


@script(*_REMOVAL, out_of_memory=True)
def prune(*, usage: Key, leaves: Key, trees: Key, turns: str, tenant: str, path: str, size: int) -> None: ...


@script(*_REMOVAL, out_of_memory=True)
def sweep(*, usage: Key, leaves: Key, trees: Key, turns: str, only: str, idle_us: int, budget: int) -> None: ...


@script(*_REMOVAL, "eviction", out_of_memory=True)
def evict(
    *,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    tenant: str,
    parent: str,
    room: int,
    max_responses: int,
    max_trees: int,
    max_bytes: int,
    memory: int,
    leaf_rank: int,
    tree_rank: int,
    budget: int,
) -> None: ...


@script(*_ADDING, *_LOGGING, "queueing")
def submit(
    *,
    node: Key,
    messages: Key,
    response: Key,
    job: Key,
    spec: Key,
    clock: Key,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    tenant: str,
    digits: str,
    parent: str,
    pin: str,
    status: str,
    continuable: str,
    digest: str,
    added: int,
    room: int,
    level: int,
    mode: str,
    fleeting: str,
    last: int,
    max_queued: int,
    max_logged: int,
    max_depth: int,
    max_responses: int,
    max_trees: int,
    max_bytes: int,
    idle_us: int,
    budget: int,
    messages_blob: bytes,
    response_blob: bytes,
    spec_blob: bytes,
    entry: bytes,
) -> None: ...


@script(*_JOBS, out_of_memory=True)
def claim(*, leases: Key, turns: str, token: str, lease_ms: int, retry_ms: int, most: int) -> None: ...


@script(*_REMOVAL, *_LOGGING, out_of_memory=True)
def journal(
    *,
    leases: Key,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    tenant: str,
    digits: str,
    token: str,
    lease_ms: int,
    after: str,
    last: int,
    entry: bytes,
    progress: str,
    snapshot: bytes,
    max_logged: int,
    budget: int,
) -> None: ...


@script(*_JOBS, out_of_memory=True)
def renew(*, leases: Key, turns: str, held: str, lease_ms: int) -> None: ...


@script(*_JOBS, out_of_memory=True)
def hand_back(*, leases: Key, turns: str, tenant: str, digits: str, token: str, counts: str) -> None: ...


@script(*_JOBS, "idle", out_of_memory=True)
def cancel(
    *, node: Key, job: Key, trees: Key, turns: str, tenant: str, digits: str, token: str, lease_ms: int, idle_us: int
) -> None: ...


@script(*_JOBS, "logs", "entries", "usage", "outbox", out_of_memory=True)
def finish(
    *,
    node: Key,
    messages: Key,
    response: Key,
    job: Key,
    spec: Key,
    clock: Key,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    tenant: str,
    digits: str,
    token: str,
    status: str,
    continuable: str,
    digest: str,
    added: int,
    after: str,
    last: int,
    entry: bytes,
    announced: str,
    max_pending: int,
    messages_blob: bytes,
    response_blob: bytes,
) -> None: ...


@script(*_REMOVAL, *_LOGGING, out_of_memory=True)
def expire_logs(*, usage: Key, leaves: Key, trees: Key, turns: str, kept_ms: int, budget: int) -> None: ...


@script(*_JOBS, "entries", "usage", read_only=True)
def gauge(*, usage: Key, leaves: Key, turns: str) -> None: ...


_WEBHOOKS = ("names", "clock", "pins", "outbox")
"""The parts of scripts that move webhooks."""


@script(*_WEBHOOKS, out_of_memory=True)
def take_webhooks(*, outbox: Key, turns: str, token: str, most: int, hold_ms: int) -> None: ...


@script(*_WEBHOOKS, out_of_memory=True)
def delay_webhook(*, outbox: Key, turns: str, member: str, tries: str, delay_ms: int) -> None: ...


@script(*_WEBHOOKS, out_of_memory=True)
def drop_webhook(*, outbox: Key, turns: str, member: str) -> None: ...


@script(out_of_memory=True)
def secret(*, secret: Key, made: bytes) -> None: ...


_JUDGING = ("logs", "entries", "queueing", "walk", "facts", "judging_jobs", "judging")
"""The parts of scripts that find what is wrong with a turn, after those for names, the time, pins and sums."""


@script("names", "clock", "pins", "usage", *_JUDGING, read_only=True)
def inspect_turns(*, clock: Key, leaves: Key, trees: Key, turns: str, members: str, version: int) -> None: ...


@script("names", "clock", read_only=True)
def recount(*, node: Key, trees: Key, turns: str, tenant: str, digits: str, children: str, since: int) -> None: ...


_REPAIR = (*_REMOVAL, *_JUDGING[1:], "placing", "repair_jobs")
"""The parts of scripts that repair turns."""


@script(*_REPAIR, out_of_memory=True)
def repair(
    *,
    clock: Key,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    members: str,
    version: int,
    budget: int,
) -> None: ...


@script(*_REPAIR, out_of_memory=True)
def discard(
    *, clock: Key, usage: Key, leaves: Key, trees: Key, turns: str, top: str, members: str, version: int
) -> None: ...


@script("names", out_of_memory=True)
def settle(
    *, clock: Key, usage: Key, logged: Key, turns: str, since: str, children: str, jobs: str, events: str, counters: str
) -> None: ...


@script("names", "clock", "pins", "queueing", out_of_memory=True)
def refit(
    *,
    clock: Key,
    usage: Key,
    leaves: Key,
    trees: Key,
    turns: str,
    names: bytes,
    lines: str,
    notes: str,
    counters: str,
    roots: str,
) -> None: ...


ALL: tuple[Script[...], ...] = (
    *(chain, lineage, touch, append, unpin),
    *(forget, abandon, prune, sweep, evict),
    *(submit, claim, journal, renew, hand_back, cancel, finish, expire_logs, gauge),
    *(take_webhooks, delay_webhook, drop_webhook, secret),
    *(inspect_turns, recount, repair, discard, settle, refit),
)
