"""The Lua scripts as typed functions: `await touch(operation, keys, idle_us=…)` runs lua/touch.lua.

A script is declared by a function without a body. Its first parameter says whether the script is about one turn or
about a shard: the script knows their names (lua/names.lua), and gets those of their keys that the declaration lists as
KEYS. The other parameters come from ARGV, an `int` as a number, a `bool` as 1 or 0. All become locals of the Lua with
the same names, so no script counts ARGV[7]. An argument is described in the head of a script, or of a file that it
includes; tests/store/redis/test_scripts.py compares these with the declaration. Arguments of several scripts are a
TypedDict.

Its KEYS end with one that never exists. While keys of a slot move one by one, a node refuses a script (TRYAGAIN) with
a listed key elsewhere; but a script touches more keys than it lists, and would miss those on the other node.
With a key that neither node has, both refuse.

The first lines of a file name those that it includes, as `--- include clock`. A script is a library of the server
(FUNCTION LOAD): names.lua, its includes and theirs are defined once, when it is loaded; its own text is run by each
call. State of one call in an included file FILE is made anew by its function `begin_FILE`, which each call begins with.

Never pass None (Redis would get the word "None"), and never write a script that can't be run twice: after a
lost reply the same call is sent again.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import (
    Any,
    Concatenate,
    Generic,
    NotRequired,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_type_hints,
)

from redis.exceptions import OutOfMemoryError, ResponseError

from store.keys import ShardKeys, TurnKeys
from store.redis.conditions import refuses_writes
from store.redis.connection import Operation
from store.redis.wire import Argument, Command

P = ParamSpec("P")
Names = TypeVar("Names", ShardKeys, TurnKeys)
"""The subject of a script: a shard or a turn, by its keys."""

Reply = list[bytes]
"""A script's result: a word for the outcome, then the details."""

_LUA = files("store.redis").joinpath("lua")

_WORD = re.compile(r"[A-Za-z_]\w*")
_INCLUDE = re.compile(r"^--- include (\w+)$", re.MULTILINE)
_BEGIN = re.compile(r"^local function (begin_\w+)\(\)$", re.MULTILINE)

LIBRARY = "harmonium_"
"""The prefix of the libraries' names; behind it the script's name, and a digest of its text."""

MOST_BUILDS = 4
"""So many times the libraries of one build may be in a server; with more, those of others go when one is loaded. A
process whose libraries are gone loads them again.
"""

_UNKNOWN = "Function not found"
_LOADED = "already exists"

_GLOBALS = {"call": "redis.call", "tonumber": "tonumber", "unpack": "unpack"}
"""The locals of each call for what scripts ask for most: a global is looked for in three tables each time."""

_NOT_AFTER = "not_after"
"""The ms on the server's clock after which the caller has given up: a call gets that of its operation."""

_STRICT: tuple[str, ...] = ()
_ALLOW_OUT_OF_MEMORY = ("allow-oom",)
_READ_ONLY = ("allow-oom", "no-writes")
"""Flags of scripts: of one that a server without memory refuses before it does anything, one that may run then, and
one that the server permits no write. Redis 7.0 and newer and every Valkey know them."""


class Script(Generic[Names, P]):
    """One Lua script: its declared names, its source with those names bound, and how to run it."""

    def __init__(
        self, declaration: Callable[Concatenate[Names, P], None], keys: str, flags: tuple[str, ...], file: str = ""
    ) -> None:
        self.name = declaration.__name__
        self.file = file or self.name
        kinds = get_type_hints(declaration)
        del kinds["return"]
        about = kinds.pop(next(iter(kinds)))
        if shared := kinds.pop("shared", None):
            kinds |= get_type_hints(get_args(shared)[0])
        self.keys = tuple(keys.split())
        self._key_count = len(self.keys) + 1
        self.arguments = tuple(kinds)
        self._flagged = [at for at, kind in enumerate(kinds.values()) if kind is bool]
        self.flags = flags
        given = {name: f"KEYS[{at}]" for at, name in enumerate(self.keys, 1)}
        names = ("turns", "tenant", "digits") if about is TurnKeys else ("turns",)
        for at, name in enumerate(names + self.arguments, 1):
            given[name] = f"tonumber(ARGV[{at}])" if kinds.get(name) is int else f"ARGV[{at}]"
        self._text = text_of(self.file, given, [name for name, kind in kinds.items() if kind is bytes])
        digest = sha1(f"{flags} {self._text}".encode(), usedforsecurity=False).hexdigest()
        self.function = f"{LIBRARY}{self.name}_{digest}"
        """The name by which the server knows the script, and the library that has it alone."""

    @property
    def library(self) -> str:
        """The Lua that defines the script in a server."""
        flags = ", ".join(f"'{flag}'" for flag in self.flags)
        made = f"function_name = '{self.function}', callback = _call, flags = {{ {flags} }}"
        return f"#!lua name={self.function}\n{self._text}\nredis.register_function{{ {made} }}\n"

    @property
    def source(self) -> str:
        """The Lua that runs the script once, as EVAL takes it."""
        flags = f" flags={','.join(self.flags)}" if self.flags else ""
        return f"#!lua{flags}\n{self._text}\nreturn _call(KEYS, ARGV)\n"

    async def __call__(self, operation: Operation, about: Names, /, *args: P.args, **values: P.kwargs) -> Reply:
        """Run the script about a turn or a shard. Raises TypeError for a value that is missing, unknown or None."""
        if args:
            raise TypeError(f"{self.name} takes its arguments by name")
        given = cast(dict[str, Argument], values)
        timely = _NOT_AFTER in self.arguments and _NOT_AFTER not in given
        shard = about.shard if isinstance(about, TurnKeys) else about
        while True:
            if timely:  # it does nothing once the operation was given up
                given[_NOT_AFTER] = await operation.not_after(shard)
            called = self._values(about, given)
            try:
                (reply,) = await operation.row(("FCALL", self.function, *called), at=called[1])
            except ResponseError as refusal:
                (reply,) = await self._whole(refusal, operation, called)
            operation.wrote |= self.flags != _READ_ONLY
            if not timely or reply[0] != b"late":
                return reply
            operation.late(shard, int(reply[1]))

    async def in_a_row(
        self, operation: Operation, about: Names, commands: list[Command], *, ahead: bool = False, **values: Argument
    ) -> list[Any]:
        """Run the script and then `commands` over the same connection; all the replies. Raises as a call does.

        With `ahead` nothing waits for the script's reply, as Operation.row says.
        """
        given = self._values(about, values)
        try:
            replies = await operation.row(("FCALL", self.function, *given), *commands, at=given[1], ahead=ahead)
        except ResponseError as refusal:
            replies = await self._whole(refusal, operation, given, commands, ahead=ahead)
        operation.wrote |= self.flags != _READ_ONLY
        return replies

    async def _whole(
        self,
        refusal: ResponseError,
        operation: Operation,
        given: list[Argument],
        commands: Sequence[Command] = (),
        *,
        ahead: bool = False,
    ) -> list[Any]:
        """The replies where the whole script is sent, as the server lacks its library. Raises any other `refusal`."""
        if _UNKNOWN not in str(refusal):
            raise refusal
        if self.flags != _READ_ONLY and not operation.loading.locked():  # what only reads, a replica runs as well
            async with operation.loading:
                await self._load(operation, given[1])
        whole = [("EVAL", self.source, *each[2:]) if each[1:2] == (self.function,) else each for each in commands]
        return await operation.row(("EVAL", self.source, *given), *whole, at=given[1], ahead=ahead)

    async def _load(self, operation: Operation, at: Argument) -> None:
        """Load this library into the server that has the key `at`, and those AT_ONCE. One that is full now takes none.
        Raises redis-py's errors.
        """
        try:
            await operation.command("FUNCTION", "LOAD", self.library, at=at)
        except ResponseError as refusal:
            if _LOADED in str(refusal) or isinstance(refusal, OutOfMemoryError) or refuses_writes(refusal):
                return
            raise
        with suppress(ResponseError):  # it has one of them
            await operation.row(*(("FUNCTION", "LOAD", each.library) for each in AT_ONCE), at=at, ahead=True)
        listed = await operation.command("FUNCTION", "LIST", "LIBRARYNAME", f"{LIBRARY}*", at=at)
        names = {dict(zip(each[::2], each[1::2], strict=True))[b"library_name"].decode() for each in listed}
        if len(names) > MOST_BUILDS * len(ALL):
            for name in names - {each.function for each in ALL}:
                with suppress(ResponseError):  # somebody else has deleted it
                    await operation.command("FUNCTION", "DELETE", name, at=at)

    def command(self, about: Names, **values: Argument) -> Command:
        """The command that runs the script where the server has it, to be sent in a row behind another call of it."""
        return ("FCALL", self.function, *self._values(about, values))

    def _values(self, about: Names, values: Mapping[str, object]) -> list[Argument]:
        given = list(map(values.get, self.arguments))
        if None in given or len(values) != len(given):
            raise TypeError(f"{self.name} takes {', '.join(self.arguments)} by name, none of them None")
        for at in self._flagged:
            given[at] = int(cast(bool, given[at]))
        keys = map(about.key, (*self.keys, "whole"))
        names = (about.shard.turns, about.tenant, about.digits) if isinstance(about, TurnKeys) else (about.turns,)
        return [self._key_count, *keys, *names, *cast(list[Argument], given)]


@cache
def lua(name: str) -> str:
    return _LUA.joinpath(f"{name}.lua").read_text()


@cache
def _parts(name: str) -> tuple[list[str], list[str], set[str]]:
    """The files that a file includes, how each call begins in it, and all its words."""
    return _INCLUDE.findall(lua(name)), [f"{each}()" for each in _BEGIN.findall(lua(name))], {*_WORD.findall(lua(name))}


def files_of(name: str) -> list[str]:
    """The files of a script, each once and after those that it includes; its own last."""
    found = ["names"]

    def add(name: str) -> None:
        for included in _parts(name)[0]:
            if included not in found:
                add(included)
        found.append(name)

    add(name)
    return found


def text_of(name: str, given: Mapping[str, str], large: Sequence[str]) -> str:
    """The Lua of a script, put together of its files, with the names that it is `given` and their values. Its last
    function is `_call`, which keeps none of the `large` values behind its end. A function has 200 names at most, so
    those that no included file has are names of the script's own text.
    """
    *included, own = files_of(name)
    asked = ", ".join(_GLOBALS.values())
    _, begins, words = zip(*map(_parts, included), strict=True)
    shared = {name: value for name, value in given.items() if any(name in each for each in words)}
    return "\n".join(
        [
            f"local function _globals() return {asked} end",
            f"local {', '.join(_GLOBALS)}",
            *(f"local {name}" for name in shared),
            *map(lua, included),
            "local function _bind(KEYS, ARGV)",
            f"  {', '.join(_GLOBALS)} = _globals()",
            *(f"  {name} = {value}" for name, value in shared.items()),
            "end",
            "local function _run(KEYS, ARGV)",
            *(f"  local {name} = {value}" for name, value in given.items() if name not in shared),
            lua(own),
            "end",
            "local function _call(KEYS, ARGV)",
            "  _bind(KEYS, ARGV)",
            *(f"  {each}" for file in begins for each in file),
            "  local reply = _run(KEYS, ARGV)",
            *(f"  {name} = nil" for name in large if name in shared),
            "  return reply",
            "end",
        ]
    )


def script(
    keys: str, *, out_of_memory: bool = False, read_only: bool = False, file: str = ""
) -> Callable[[Callable[Concatenate[Names, P], None]], Script[Names, P]]:
    """Make the script lua/NAME.lua, or that of `file`, of a declaration called NAME.

    `keys` are those that it gets as KEYS, with spaces between. One that adds next to nothing says `out_of_memory`: it
    also runs on a server without memory, so that turns can be read, and deleted to make room. One that is
    `read_only` runs then, too.
    """
    flags = _READ_ONLY if read_only else _ALLOW_OUT_OF_MEMORY if out_of_memory else _STRICT

    def declare(declaration: Callable[Concatenate[Names, P], None]) -> Script[Names, P]:
        return Script(declaration, keys, flags, file)

    return declare


class ShardBounds(TypedDict):
    """The most that a shard may have."""

    max_responses: int
    max_trees: int
    max_bytes: int


class TurnRoom(ShardBounds):
    """The room that a turn needs below its parent."""

    parent: str
    room: int
    budget: int


class Written(TypedDict):
    """A turn as it is written."""

    status: str
    continuable: str
    digest: str
    added: int
    said: bytes
    messages_blob: bytes
    response_blob: bytes
    pictures: bytes


class Below(Written, TurnRoom):
    """A turn that is added."""

    max_depth: int


class AddedTurn(Below):
    """A turn that its run adds."""

    pin: str
    not_after: NotRequired[int]
    idle_us: int


class Accepted(TypedDict):
    """The job of a response that is accepted."""

    last: int
    max_queued: int
    max_waiting: int
    max_logged: int
    spec_blob: bytes
    entry: bytes


class SubmittedTurn(AddedTurn, Accepted):
    """A response in the background."""


class JobEnding(TypedDict):
    """The end of a response in the background, beside its turn."""

    token: str
    after: str
    steers: str
    announced: bool
    max_pending: int
    spent: str


class Succeeding(Below, Accepted, JobEnding):
    """A response that goes on from another one."""


class EndedJob(Written, JobEnding):
    """The end of a response in the background."""


class Elsewhere(TypedDict):
    """The word of an archive on a turn that isn't here."""

    archived: str
    fence_ms: int
    archived_root: str
    archived_deleted: bool


@script("node pins clock leaves trees", out_of_memory=True)
def chain(
    turn: TurnKeys,
    *,
    pin: str,
    pin_ms: int,
    max_depth: int,
    max_messages: int,
    max_bytes: int,
    max_held: int,
    under_way: bool,
    idle_us: int,
    not_after: int = 0,
) -> None: ...


@script("trees", read_only=True)
def recognise(shard: ShardKeys, *, tenant: str, digests: bytes, forks: bool, idle_us: int) -> None: ...


@script("node trees", read_only=True)
def lineage(turn: TurnKeys, *, idle_us: int) -> None: ...


@script("node job clock leaves trees", out_of_memory=True)
def touch(turn: TurnKeys, *, touches: bool, idle_us: int) -> None: ...


@script("node job clock leaves trees", read_only=True, file="touch")
def look(turn: TurnKeys, *, touches: bool, idle_us: int) -> None: ...


@script("clock", out_of_memory=True)
def prove(shard: ShardKeys, *, takes_turns: bool) -> None: ...


@script("clock", out_of_memory=True)
def mark(shard: ShardKeys, *, there: str) -> None: ...


@script("node messages response clock usage leaves trees")
def append(
    turn: TurnKeys,
    *,
    conversation: str,
    conversation_blob: bytes,
    no_messages: bytes,
    spent: str,
    **shared: Unpack[AddedTurn],
) -> None: ...


@script("node messages response clock usage leaves trees")
def restore(
    turn: TurnKeys,
    *,
    parent: str,
    created: int,
    used: int,
    deleted: str,
    erased: str,
    background: str,
    submission: str,
    held: int,
    wait_ms: int,
    source: str,
    continued: bool,
    asked_ms: int,
    fence_ms: int,
    max_responses: int,
    max_trees: int,
    max_bytes: int,
    **shared: Unpack[Written],
) -> None: ...


@script("node pins clock leaves trees", out_of_memory=True)
def hold(turn: TurnKeys, *, token: str, hold_ms: int, idle_us: int, not_after: int = 0) -> None: ...


@script("clock", out_of_memory=True)
def ask(turn: TurnKeys, *, asked: str, kept_ms: int, most: int) -> None: ...


@script("clock", out_of_memory=True)
def use_up(turn: TurnKeys, *, number: str, digest: str, by: str, run: str, kept_ms: int) -> None: ...


@script("trees", read_only=True)
def page(
    shard: ShardKeys, *, of: str, tenant: str, score: str, after: str, ascending: int, most: int, idle_us: int
) -> None: ...


@script("leaves trees", read_only=True)
def sum_up(shard: ShardKeys, *, tenant: str, roots: str, most: int) -> None: ...


@script("node trees", read_only=True)
def tips(turn: TurnKeys, *, cursor: str, most: int, idle_us: int) -> None: ...


@script("trees", read_only=True)
def climb(shard: ShardKeys, *, tenant: str, ends: str, seen: str, most: int) -> None: ...


@script("leases", read_only=True)
def jobs_of(shard: ShardKeys, *, tenant: str, most: int) -> None: ...


@script("node response clock usage leaves trees")
def amend(turn: TurnKeys, *, idle_us: int, response_blob: bytes, **shared: Unpack[TurnRoom]) -> None: ...


@script("node pins", out_of_memory=True)
def unpin(turn: TurnKeys, *, pin: str) -> None: ...


@script("node messages response pins usage leaves trees", out_of_memory=True)
def forget(
    turn: TurnKeys, *, token: str, idle_us: int, erase: bool, no_messages: bytes, **shared: Unpack[Elsewhere]
) -> None: ...


@script("node messages response usage leaves trees", out_of_memory=True)
def redact(
    turn: TurnKeys, *, redactions: str, idle_us: int, messages_blob: bytes, response_blob: bytes, notes: str
) -> None: ...


@script("node messages response pins usage leaves trees", out_of_memory=True)
def let_go(turn: TurnKeys, *, used: str) -> None: ...


@script("node trees", out_of_memory=True)
def abandon(turn: TurnKeys, *, token: str, idle_us: int, **shared: Unpack[Elsewhere]) -> None: ...


@script("clock", out_of_memory=True)
def archived(turn: TurnKeys, *, done: str, fence_ms: int) -> None: ...


@script("trees", out_of_memory=True)
def begin_archive(shard: ShardKeys, *, after_ms: int) -> None: ...


@script("clock", out_of_memory=True)
def raise_clock(shard: ShardKeys, *, us: int) -> None: ...


@script("archive_head", out_of_memory=True)
def raise_head(shard: ShardKeys, *, known: int, gone: int, more: int) -> None: ...


@script("clock trees", out_of_memory=True)
def note_older(shard: ShardKeys, *, tree: str, members: str) -> None: ...


@script("unarchived", out_of_memory=True)
def queue_again(shard: ShardKeys, *, members: str) -> None: ...


@script("older", out_of_memory=True)
def pass_older(shard: ShardKeys, *, before: str, after: str) -> None: ...


@script("unarchived", out_of_memory=True)
def end_archive(shard: ShardKeys, *, budget: int) -> None: ...


@script("usage leaves trees", out_of_memory=True)
def prune(turn: TurnKeys, *, path: str) -> None: ...


@script("usage leaves trees", out_of_memory=True)
def sweep(
    shard: ShardKeys, *, only: str, idle_us: int, named_us: int, grace_us: int, clock_us: int, budget: int
) -> None: ...


@script("usage leaves trees", out_of_memory=True)
def evict(turn: TurnKeys, *, memory: int, stays: bytes, tree_rank: int, **shared: Unpack[TurnRoom]) -> None: ...


@script("node messages response job spec clock usage leaves trees")
def submit(
    turn: TurnKeys,
    *,
    conversation: str,
    level: int,
    group: str,
    hurries: bool,
    mode: str,
    fleeting: bool,
    steerable: bool,
    **shared: Unpack[SubmittedTurn],
) -> None: ...


@script("leases", out_of_memory=True)
def claim(
    shard: ShardKeys,
    *,
    token: str,
    not_after: int = 0,
    lease_ms: int,
    first_ms: int,
    retry_ms: int,
    most: int,
    most_level: int,
    spare_ms: str,
) -> None: ...


@script("leases usage leaves trees", out_of_memory=True)
def journal(
    turn: TurnKeys,
    *,
    token: str,
    lease_ms: int,
    after: str,
    last: int,
    entry: bytes,
    progress: bool,
    snapshot: bytes,
    max_logged: int,
    budget: int,
) -> None: ...


@script("leases", out_of_memory=True)
def renew(shard: ShardKeys, *, held: str, lease_ms: int) -> None: ...


@script("leases", out_of_memory=True)
def hand_back(turn: TurnKeys, *, token: str, counts: bool, gives_way: bool) -> None: ...


@script("node job trees", out_of_memory=True)
def cancel(turn: TurnKeys, *, token: str, lease_ms: int, idle_us: int) -> None: ...


@script("node messages response job spec clock usage leaves trees", out_of_memory=True)
def finish(turn: TurnKeys, *, last: int, entry: bytes, **shared: Unpack[EndedJob]) -> None: ...


@script("node messages response job spec clock usage leaves trees")
def succeed(
    turn: TurnKeys,
    *,
    ended_status: str,
    ended_digest: str,
    ended_added: int,
    ended_said: bytes,
    ended_last: int,
    ended_entry: bytes,
    ended_messages: bytes,
    ended_response: bytes,
    ended_pictures: bytes,
    **shared: Unpack[Succeeding],
) -> None: ...


@script("node job usage leaves trees")
def steer(turn: TurnKeys, *, id: str, said: bytes, most: int, most_bytes: int, idle_us: int) -> None: ...


@script("usage leaves trees", out_of_memory=True)
def expire_logs(shard: ShardKeys, *, kept_ms: int, budget: int) -> None: ...


@script("usage leaves", read_only=True)
def gauge(shard: ShardKeys) -> None: ...


@script("trees", read_only=True)
def describe(shard: ShardKeys, *, members: str, above: int, idle_us: int) -> None: ...


@script("outbox", out_of_memory=True)
def take_webhooks(shard: ShardKeys, *, token: str, most: int, hold_ms: int) -> None: ...


@script("outbox", out_of_memory=True)
def return_webhook(shard: ShardKeys, *, member: str, tries: str, delay_ms: int) -> None: ...


@script("secret", out_of_memory=True)
def secret(shard: ShardKeys, *, made: bytes) -> None: ...


@script("clock")
def keep_record(
    turn: TurnKeys,
    *,
    kind: str,
    record: bytes,
    before: bytes,
    works: str,
    under_way: bool,
    most: int,
    most_open: int,
    kept_ms: int,
) -> None: ...


@script("clock")
def keep_piece(
    shard: ShardKeys,
    *,
    tenant: str,
    file: str,
    begins: bool,
    total: int,
    number: int,
    piece: bytes,
    lease_ms: int,
    most: int,
    most_bytes: int,
    most_held: int,
) -> None: ...


@script("clock", out_of_memory=True)
def keep_file(
    shard: ShardKeys, *, tenant: str, file: str, record: bytes, total: int, pieces: int, until_ms: int, adopts: bool
) -> None: ...


@script("clock", out_of_memory=True)
def drop_file(shard: ShardKeys, *, tenant: str, file: str, due: bool) -> None: ...


@script("clock")
def take_keyed(
    turn: TurnKeys, *, body: str, owner: str, lease_ms: int, kept_ms: int, most: int, not_after: int = 0
) -> None: ...


@script("clock", out_of_memory=True)
def keep_keyed(
    turn: TurnKeys, *, owner: str, ends: str, named: str, kept: str, calls: int, lease_ms: int, kept_ms: int
) -> None: ...


@script("registry registry_used audit_entries audit_shares registry_news", out_of_memory=True)
def change_registry(
    shard: ShardKeys,
    *,
    changes: bytes,
    places: bytes,
    mark: str,
    entries: bytes,
    share: str,
    most_entries: int,
    tell: str,
) -> None: ...


@script("registry registry_used", out_of_memory=True)
def note_used(shard: ShardKeys, *, used: bytes) -> None: ...


@script("reservations", out_of_memory=True)
def admit(
    shard: ShardKeys,
    *,
    tenant: str,
    over: bytes,
    digits: str,
    token: str,
    not_after: int = 0,
    checks: bytes,
    reads: int,
    writes: int,
    usual: int,
    held_ms: int,
) -> None: ...


@script("reservations", out_of_memory=True)
def settle_admitted(shard: ShardKeys, *, tenant: str, over: bytes, held: str, held_ms: int) -> None: ...


@script("node", out_of_memory=True)
def spend(turn: TurnKeys, *, spent: str, marked_ms: int) -> None: ...


@script("store", out_of_memory=True)
def agree(shard: ShardKeys, *, revision: str, fields: str, release: str) -> None: ...


@script("clock usage leaves trees", read_only=True)
def inspect_turns(shard: ShardKeys, *, members: str, version: int) -> None: ...


@script("clock usage leaves trees", out_of_memory=True)
def repair(shard: ShardKeys, *, members: str, version: int, alone: bool, budget: int) -> None: ...


@script("clock usage leaves trees", out_of_memory=True)
def discard(shard: ShardKeys, *, top: str, members: str, circle: bool, archive: str, version: int) -> None: ...


@script("clock usage", out_of_memory=True)
def settle(shard: ShardKeys, *, since: str, commands: bytes, events: str) -> None: ...


ALL = tuple(cast("Script[Any, ...]", each) for each in tuple(globals().values()) if isinstance(each, Script))

AT_ONCE = (evict, *(each for each in ALL if each.flags == _READ_ONLY))
"""The scripts that a server gets with the first one, as it takes none when it needs them: full, or a replica. Any other
waits until it is asked for: Lua's collector goes over all that is loaded, again and again.
"""
