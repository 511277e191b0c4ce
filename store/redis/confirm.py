"""Confirming: a write is on as many replicas, or on the disk, as the settings ask, before anybody hears of it.

Redis answers a write before its replicas have it and before it is synced. WAIT and WAITAOF wait for both, for all that
one connection has written. A new connection has written nothing, and may lead to a server that took over
without the write: its WAIT would say yes at once. So one connection, in a row, asks whether the turns are there, then
writes a mark behind them, and then sends WAIT for the mark. A server that has the mark has the turns.

Many turns of a shard are confirmed by one such row, as a sync once a second is one for all of them. It goes over few
connections, so however long it takes, other operations have theirs. Never confirm a write by its own operation: that
would hold a connection for each.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from store.errors import StoreUnconfirmed, Unsupported
from store.keys import ShardKeys, TurnKeys
from store.redis import scripts
from store.redis.connection import Argument, Server

BATCH = 64
"""The most turns that one row confirms: the script takes a fraction of a millisecond. Proofs come on top of it."""

AT_ONCE = 2
"""How many rows a shard has under way: turns that come while one waits needn't wait for its end."""

CONNECTION_PART = 4
"""A process confirms over at most 1/CONNECTION_PART of its connections."""

ENDED = "ended"
"""Stands in place of a digest for a turn that has ended, in any way."""

_PROBE: tuple[Argument, ...] = ("WAITAOF", 1, 0, 1)

TRIES = 3
"""How often a turn is stored again that a failover lost before it was confirmed."""

CONFIRM_SECONDS = 5.0
"""How long one row waits for the replicas, and as long for the disk. After that it raises StoreUnconfirmed."""


@dataclass(frozen=True, slots=True)
class Safety:
    """The safety of a stored turn: on so many replicas, and on the disk. A row waits `seconds` for each of both."""

    replicas: int = 0
    fsync: bool = False
    seconds: float = CONFIRM_SECONDS

    @property
    def wanted(self) -> bool:
        return self.replicas > 0 or self.fsync

    @property
    def waits(self) -> list[tuple[Argument, ...]]:
        ms = max(1, round(self.seconds * 1000))
        replicas: tuple[Argument, ...] = ("WAIT", self.replicas, ms)
        synced: tuple[Argument, ...] = ("WAITAOF", 1, 0, ms)
        return [*([replicas] if self.replicas else []), *([synced] if self.fsync else [])]

    def lack(self, found: Sequence[object]) -> str:
        """The missing copies by the replies to `waits`, in words; empty if none is missing."""
        missing: list[str] = []
        for command, reply in zip(self.waits, found, strict=True):
            if command[0] == "WAIT" and isinstance(reply, int) and reply < self.replicas:
                missing.append(f"{reply} of {self.replicas} replicas had it")
            elif command[0] == "WAITAOF" and isinstance(reply, list) and not reply[0]:
                missing.append("the disk did not have it")
        return " and ".join(missing)


class Confirmer:
    """Confirms the turns that this process has stored, many at once."""

    def __init__(self, server: Server, safety: Safety) -> None:
        self.safety = safety
        self._server = server
        self._room = asyncio.Semaphore(max(1, server.wires.most // CONNECTION_PART))
        self._waiting: dict[ShardKeys, list[tuple[str, asyncio.Future[bool]]]] = {}
        self._rows: dict[ShardKeys, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def confirm(self, turn: TurnKeys, digest: str) -> bool:
        """Wait until a turn that is stored is safe; False if it isn't there with this content any more.

        Raises StoreUnconfirmed where it is there and not as safe as that in time, and StoreUnavailable.
        """
        return not self.safety.wanted or await self._confirmation(turn.shard, f"{turn.tenant}/{turn.digits}={digest}")

    async def prove(self, *shards: ShardKeys) -> None:
        """Return if a write to these shards is safe in time now. Raises the errors of `confirm`."""
        if self.safety.wanted:
            await asyncio.gather(*(self._confirmation(shard, "") for shard in shards))

    def _confirmation(self, shard: ShardKeys, turn: str) -> asyncio.Future[bool]:
        """The future answer of a row about a turn, or about '' for a proof: one row answers any number of proofs."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(shard, []).append((turn, answer))
        if self._rows.get(shard, 0) < AT_ONCE:
            self._rows[shard] = self._rows.get(shard, 0) + 1
            task = asyncio.create_task(self._confirm_all(shard))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    async def require(self, shards: list[ShardKeys]) -> None:
        """Return if the servers of these shards know the commands that wait. Raises Unsupported, StoreUnavailable."""
        if not self.safety.fsync:
            return
        async with self._server.operation() as operation:
            for shard in shards:
                try:
                    await operation.command(*_PROBE, at=shard.clock)
                except ResponseError as refusal:
                    raise _unsupported_error(refusal) from refusal

    async def close(self) -> None:
        """Wait for the rows under way, which have their own time limit."""
        await asyncio.gather(*self._tasks)

    async def _confirm_all(self, shard: ShardKeys) -> None:
        try:
            while self._waiting[shard]:
                async with self._room:
                    waiting = self._waiting[shard]  # another row may have taken some by now
                    proofs, turns = [each for each in waiting if not each[0]], [each for each in waiting if each[0]]
                    self._waiting[shard] = turns[BATCH:]
                    await self._answer(shard, [*proofs, *turns[:BATCH]])
        finally:
            self._rows[shard] -= 1

    async def _answer(self, shard: ShardKeys, some: list[tuple[str, asyncio.Future[bool]]]) -> None:
        if not some:
            return
        try:
            missing = await self._row(shard, [turn for turn, _ in some if turn])
        except Exception as failure:  # also for a bug: else the callers would wait for ever
            for _, answer in some:
                if not answer.done():  # else nobody waits for it any more
                    answer.set_exception(failure)
            return
        for turn, answer in some:
            if not answer.done():
                answer.set_result(turn.rpartition("=")[0] not in missing)

    async def _row(self, shard: ShardKeys, turns: list[str]) -> set[str]:
        waits, began = self.safety.waits, time.monotonic()
        async with self._server.operation(longer=self.safety.seconds * len(waits)) as operation:
            (_, *missing), *found = await scripts.mark.in_a_row(operation, shard, waits, there=" ".join(turns))
        lack = self.safety.lack(found)
        self._server.watcher.waited(not lack, time.monotonic() - began)
        if lack:
            failure = StoreUnconfirmed(f"{lack} within {self.safety.seconds:g} s. Check that they run, and follow it.")
            self._server.health.note(failure, "unconfirmed", began)
            raise failure
        self._server.health.succeeded(wrote=True, confirmed=True)
        return {member.decode() for member in missing}


def _unsupported_error(refusal: ResponseError) -> Exception:
    """The error for a refused WAITAOF; the refusal itself if it is none of the two known ones."""
    if "unknown command" in str(refusal).lower():
        return Unsupported("HARMONIUM_STORE_FSYNC needs Valkey, or Redis 7.2 or newer: upgrade the server, or unset it")
    if "appendonly" in str(refusal).lower():
        return Unsupported("HARMONIUM_STORE_FSYNC needs an append-only file: CONFIG SET appendonly yes, or unset it")
    return refusal
