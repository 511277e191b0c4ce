"""Jobs: background responses from their acceptance to their end, and the queue in which they wait.

A worker holds a job by its lease: a token that every write carries, timed by the server's clock. A worker that dies or
doesn't renew its lease loses it. The next one continues from the job's log, and writes of the former one are refused.
So a job waits in the queue, or its lease ends by itself.

A job's spec, the entries of its log and its snapshots are bytes that the store never reads. Never finish a job whose
last event isn't terminal, and never change a job but by its scripts.

All logs of a shard share one bound. The oldest logs of ended responses go first. Where only logs of jobs under way are
left, nothing more is written; removed logs stay removed.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from redis.exceptions import OutOfMemoryError

from store import codec
from store.errors import (
    LeaseLost,
    LogBehind,
    LogFull,
    MemoryFull,
    NotCancellable,
    NotFound,
    NotSteerable,
    QueueFull,
    Steered,
    SteersFull,
)
from store.history.append import Addition, continuable, refuse_joining, said_of, spending
from store.history.delete import in_pieces
from store.history.history import ConversationHistoryStore
from store.jobs.log import EventLog, LogEntry
from store.jobs.model import (
    LEVELS,
    MARGIN_SECONDS,
    WINDOWS,
    Finished,
    Job,
    JobClaim,
    JobLimits,
    Lease,
    Priority,
    QueueFigures,
    Renewal,
    Steer,
    Successor,
    WaitingTenant,
)
from store.keys import ShardKeys, TurnKeys, id_of, shard_of
from store.redis import scripts
from store.redis.connection import Operation
from store.turn import CONTINUABLE, TERMINAL, Status, Turn

SPARE_MS = " ".join(f"{1000 * (window - MARGIN_SECONDS):.0f}" for _, window in sorted(WINDOWS.items()))
"""For how long jobs of each of these priorities wait, before they get the priority DEFAULT."""

RETRY_MS = 10_000
"""How long a claim's result is kept for its retries, which come within the time limit of an operation."""

CLAIM_BATCH = 64

SPECS_AT_ONCE = 2
"""How many pieces of specs a process reads at once, so that the time of an operation suffices for each."""

SPEC_PIECE_BYTES = 1 << 20
"""How much of a spec is read at once, so that even a slow link carries it within the time limit of an operation."""

WAITING_PART = 2
"""Jobs that wait and have not begun may use 1/WAITING_PART of a shard's event logs; the rest is for those that run."""

MAX_STEERS = 16
"""The most steers of one response while it is under way."""

MAX_STEER_BYTES = 1 << 20
"""The most bytes of all of these."""

DROP_BATCH = 20
"""The most logs that one call removes, so that others are served in between."""


class Jobs:
    """Submit jobs, claim them, write to their logs, end them."""

    def __init__(self, history: ConversationHistoryStore, limits: JobLimits | None = None) -> None:
        self.limits = limits or JobLimits()
        self.history = history
        self.log = EventLog(history)
        self._keyspace = history.keyspace
        self._server = history.server
        self._reading = asyncio.Semaphore(SPECS_AT_ONCE)

    @property
    def shards(self) -> int:
        return self._keyspace.shards

    def shard_of(self, lease: Lease) -> int:
        return shard_of(lease.id[5:])

    def control(self, shard: int) -> str:
        """The channel that tells workers that a job waits in a shard, or `cancelled TENANT/DIGITS`."""
        return self._keyspace.all_shards()[shard].control

    async def submit(
        self,
        tenant: str,
        turn: Turn,
        spec: bytes,
        entry: LogEntry,
        *,
        priority: Priority = Priority.DEFAULT,
        streams: bool = False,
        fleeting: bool = False,
        steerable: bool = False,
        pin: str | None = None,
        conversation: str | None = None,
        group: str = "",
        hurries: bool = False,
    ) -> None:
        """Accept a response as a child of its parent, which is then kept until it ends; a retry changes nothing.

        Jobs of a tenant's `group` in one shard wait where the first of them did, before what came behind it. One that
        `hurries` waits before all of its tenant's at its priority that don't. `turn` has the status queued; `entry`
        begins its log. With `streams` its events are kept for a while after its end. A `fleeting` one is deleted with
        its log, and can't be continued. A `steerable` one takes steers while it is under way. With a `conversation`,
        whose tip is the parent, `pin` is the hold of that, which ends here: from now on the job holds it until its
        end, when it is added there; a fleeting one does neither. A retry stores one again that has ended and was
        deleted meanwhile, as with `append`. A server that stood still accepts no job after its caller was told of a
        failure. Raises QueueFull, the errors of `append`, and with a conversation ConversationNotFound and
        ConversationMoved.
        """
        if turn.status is not Status.QUEUED:
            raise ValueError(f"{turn.id} is {turn.status}: only what is queued can be submitted")
        history = self.history
        addition = Addition(*history.keys_of(tenant, turn), turn, await codec.pack(turn), pin or "", spec)

        def refuse(reply: scripts.Reply) -> None:
            self._refuse_queueing(reply)
            refuse_joining(reply[0], str(conversation))

        await history.add(
            addition,
            scripts.submit,
            refuse,
            conversation="" if conversation is None else self._keyspace.conversation(tenant, conversation).digits,
            level=priority.value,
            group=group,
            hurries=hurries,
            mode="stream" if streams else "plain",
            fleeting=fleeting,
            steerable=steerable,
            **self._job_arguments(entry, spec),
        )

    def _job_arguments(self, entry: LogEntry, spec: bytes) -> dict[str, Any]:
        return {
            "last": entry.last,
            "max_queued": self.limits.waiting,
            "max_waiting": self.limits.log_bytes // WAITING_PART,
            "max_logged": self.limits.log_bytes,
            "spec_blob": spec,
            "entry": entry.blob,
        }

    def _refuse_queueing(self, reply: scripts.Reply) -> None:
        word, *detail = reply
        if word in (b"queue", b"crowded"):
            most, part = map(int, detail)
            raise QueueFull(most, what="jobs" if word == b"queue" else "bytes", hours=part > 1)

    async def claim(self, shard: int, most: int, level: int = LEVELS - 1) -> JobClaim:
        """Take up to `most` jobs of a shard to work on them, in their order, once those whose lease ran out wait again.

        With 0 no more is done, and the claim names the tenants that are next. None is taken from behind `level`, but
        where others take turns with one whose job waits before that. A lease is short until its holder first calls
        `renew` or `write`, and only then it counts as a try. Raises StoreUnavailable.
        """
        keys, token = self._keyspace.all_shards()[shard], self.history.token()
        _, now, rescued, running, first, waiting, *rows = await self._server.run(
            scripts.claim,
            keys,
            token=token,
            lease_ms=self.limits.lease_ms,
            first_ms=self.limits.first_ms,
            retry_ms=RETRY_MS,
            most=min(most, CLAIM_BATCH),
            most_level=int(level),
            spare_ms=SPARE_MS,
        )
        self._server.note_clock(keys, int(now))
        jobs = [_job_of(row, token) for row in rows]
        tenants = tuple(_waiting_of(row) for row in waiting.decode().split(",") if row)
        return JobClaim(jobs, int(rescued), int(running), int(first) if first else None, tenants)

    async def spec(self, lease: Lease, start: int = 0) -> bytes:
        """The next piece of a job's spec from a byte on, empty behind its end, and for a job that has ended. Raises
        StoreUnavailable.
        """
        key = self._keys(lease).key("spec")
        async with self._reading, self._server.operation() as operation:
            return await operation.command("GETRANGE", key, start, start + SPEC_PIECE_BYTES - 1)

    async def write(
        self, lease: Lease, entry: LogEntry, *, after: int | None = None, progress: bool = True, snapshot: bytes = b""
    ) -> None:
        """Add an entry to the job's log, and renew its lease; a retry changes nothing.

        `after` is the number of the event before it, with which the log has to end. With `progress` it counts as
        progress of this try. A `snapshot` of all events so far saves readers the log. Never write an event in two
        entries: the next one begins after this one. Raises LeaseLost, LogFull, LogBehind, StoreUnavailable.
        """
        keys = self._keys(lease)
        if snapshot:
            snapshot = b"%d " % entry.last + snapshot
        async with self._server.operation() as operation:
            word, detail = b"again", []
            while word == b"again":  # each call removes logs, until there are none
                word, *detail = await scripts.journal(
                    operation,
                    keys,
                    token=lease.token,
                    lease_ms=self.limits.lease_ms,
                    after="" if after is None else str(after),
                    last=entry.last,
                    entry=entry.blob,
                    progress=progress,
                    snapshot=snapshot,
                    max_logged=self.limits.log_bytes,
                    budget=DROP_BATCH,
                )
        if word == b"full":
            raise LogFull(lease.id)
        _refuse_lease(word, detail, lease.id)

    async def renew(self, leases: Sequence[Lease]) -> Renewal:
        """Renew leases of one shard; returns the lost and the steered ones. Raises StoreUnavailable."""
        if not leases:
            return Renewal([], [])
        shard = self._keyspace.all_shards()[self.shard_of(leases[0])]
        held = {f"{each.tenant}/{each.id[5:]}": each for each in leases}
        tokens = " ".join(f"{member} {each.token}" for member, each in held.items())
        _, lost, *members = await self._server.run(scripts.renew, shard, held=tokens, lease_ms=self.limits.lease_ms)
        told = [held[member.decode()] for member in members]
        return Renewal(told[: int(lost)], told[int(lost) :])

    async def hand_back(self, lease: Lease, *, failed: bool, gives_way: bool = False) -> None:
        """Put a job back into the queue, before its tenant's that have not begun; `failed` counts it as a failed try.

        One that `gives_way` waits at the level of its priority, behind other tenants there. Raises StoreUnavailable;
        the lease then ends by itself.
        """
        await self._server.run(
            scripts.hand_back, self._keys(lease), token=lease.token, counts=failed, gives_way=gives_way
        )

    async def cancel(self, tenant: str, id: str) -> Job | None:
        """Cancel a response: its status is cancelled, and nobody else can write to its log.

        Returns the job for the caller to end it; None where it was cancelled before. Raises NotFound, NotCancellable,
        StoreUnavailable.
        """
        keys = self._keyspace.response(tenant, id)
        return await self.history.at_hand(keys, lambda: self._cancel(keys, Lease(tenant, id, self.history.token())))

    async def _cancel(self, keys: TurnKeys, lease: Lease) -> Job | None:
        word, *detail = await self._server.run(
            scripts.cancel, keys, token=lease.token, lease_ms=self.limits.lease_ms, idle_us=self.history.caps.idle_us
        )
        if word == b"missing":
            raise NotFound(lease.id)
        if word in (b"ended", b"synchronous"):
            raise NotCancellable(lease.id, detail[0].decode() if detail else None)
        if word != b"ok":
            return None
        epoch, last, age_ms, run_ms = map(int, detail)
        return Job(lease, epoch, Status.CANCELLED, 1, last, age_ms / 1000, run_ms / 1000, 0.0)

    async def steer(self, tenant: str, id: str, steer: Steer) -> None:
        """Add a steer to a response that is under way: its worker has to account for it at the end.

        A retry changes nothing, also once the response has ended. Raises NotFound, NotSteerable, SteersFull, StoreFull,
        StoreUnavailable; and StoreUnconfirmed where it is added, but not as safe as the settings ask.
        """
        keys = self._keyspace.response(tenant, id)

        async def say() -> None:
            async with self._server.operation() as operation:
                try:
                    word, *detail = await scripts.steer(
                        operation,
                        keys,
                        id=steer.id,
                        said=steer.said,
                        most=MAX_STEERS,
                        most_bytes=MAX_STEER_BYTES,
                        idle_us=self.history.caps.idle_us,
                    )
                except OutOfMemoryError as error:
                    raise MemoryFull from error
            if word == b"missing":
                raise NotFound(id)
            if word in (b"ended", b"unsteerable"):
                raise NotSteerable(id, detail[0].decode() if detail else None)
            if word == b"many":
                raise SteersFull(id)

        await self.history.at_hand(keys, say)
        if self.history.confirmer.safety.wanted:
            await self.history.confirmer.prove(keys.shard)
            await say()  # which changes nothing, unless a failover has lost it meanwhile

    async def steers(self, lease: Lease) -> list[Steer]:
        """The steers of a response so far, in the order in which they came. Raises LeaseLost, StoreUnavailable."""
        found: list[bytes] = await self._server.command("HGETALL", self._keys(lease).key("job"))
        job = dict(zip(found[::2], found[1::2], strict=True))
        if job.get(b"token") != lease.token.encode():
            raise LeaseLost(lease.id)
        return [Steer(id.decode(), job[b"said:" + id]) for id in job.get(b"steers", b"").split()]

    async def finish(
        self,
        lease: Lease,
        turn: Turn,
        entry: LogEntry,
        *,
        after: int | None = None,
        announced: bool = False,
        steers: Sequence[Steer] = (),
    ) -> Finished:
        """Store the turn of a response that has ended, with the last entry of its log; a retry changes nothing.

        Its room was reserved when it was accepted. The conversation that it holds then moves to it, unless it failed.
        `after` is as for `write`. `announced` puts its end into the outbox. `steers` are all of its steers.
        Raises Steered where it has others, LeaseLost, LogBehind, StoreUnavailable, and ValueError for an
        impossible end: turn.py has no such move, or the log has its last event already.
        """
        _check_end(lease, turn)
        keys, packed = self._keys(lease), await codec.pack(turn)

        values = partial(
            scripts.finish,
            **self._ending(lease, turn, after=after, announced=announced, steers=steers),
            status=turn.status,
            continuable=continuable(turn.status),
            digest=packed.digest,
            added=len(turn.messages),
            said=said_of(turn),
            last=entry.last,
            entry=entry.blob,
            messages_blob=packed.messages,
            response_blob=packed.response,
            pictures=packed.pictures,
        )
        reply = await self.history.await_safety(
            lambda operation: values(operation, keys), keys, packed.digest, lambda reply: _refuse_end(reply, turn)
        )
        self.history.note_written(lease.tenant, turn)
        return Finished(int(reply[1]), reply[2].decode())

    def _ending(
        self, lease: Lease, turn: Turn, *, after: int | None, announced: bool, steers: Sequence[Steer]
    ) -> dict[str, Any]:
        return {
            "token": lease.token,
            "after": "" if after is None else str(after),
            "steers": " ".join(steer.id for steer in steers),
            "announced": announced,
            "max_pending": self.limits.pending,
            "spent": spending(turn.expense, self.history.caps),
        }

    async def succeed(
        self,
        lease: Lease,
        turn: Turn,
        entry: LogEntry,
        successor: Successor,
        *,
        steers: Sequence[Steer],
        after: int | None = None,
        announced: bool = False,
    ) -> Finished:
        """Finish a response and submit its successor, which continues it: both or neither.

        A retry changes nothing. The successor is steerable, and takes the level and the place in line of this one.
        Raises the errors of `finish`, and where there is no room for the successor, so that neither was done:
        QueueFull, ChainTooLong, TurnTooLarge, StoreFull.
        """
        _check_end(lease, turn)
        if turn.status not in CONTINUABLE or successor.turn.parent != turn.id:
            raise ValueError(f"{successor.turn.id} can't go on from {turn.id}, which is {turn.status}")
        history, packed = self.history, await codec.pack(turn)
        below = history.keys_of(lease.tenant, successor.turn)
        addition = Addition(*below, successor.turn, await codec.pack(successor.turn), "", successor.spec)

        def refuse(reply: scripts.Reply) -> None:
            _refuse_end(reply, turn)
            self._refuse_queueing(reply)

        reply = await history.add(
            addition,
            scripts.succeed,
            refuse,
            **self._ending(lease, turn, after=after, announced=announced, steers=steers),
            **self._job_arguments(successor.entry, successor.spec),
            ended_status=turn.status,
            ended_digest=packed.digest,
            ended_added=len(turn.messages),
            ended_said=said_of(turn),
            ended_last=entry.last,
            ended_entry=entry.blob,
            ended_messages=packed.messages,
            ended_response=packed.response,
            ended_pictures=packed.pictures,
        )
        history.note_written(lease.tenant, turn)
        return Finished(int(reply[2]), "")

    async def snapshot(self, tenant: str, id: str) -> tuple[int, bytes] | None:
        """The last snapshot, after the number of its last event. Raises NotFound, StoreUnavailable."""
        snapshot = self._keyspace.turn(tenant, id).key("snapshot")
        blob = await self._server.command("GET", snapshot)
        if blob is None:
            return None
        last, _, taken = cast(bytes, blob).partition(b" ")
        return int(last), taken

    async def expire_logs(self) -> None:
        """Remove the logs that were kept for long enough, in all shards.

        Raises StoreUnavailable if it failed in a shard; the next call removes the rest there.
        """
        kept_ms = round(self.limits.log_seconds * 1000)

        async def expire(operation: Operation, shard: ShardKeys) -> bool:
            (word,) = await scripts.expire_logs(operation, shard, kept_ms=kept_ms, budget=DROP_BATCH)
            return word == b"again"

        await in_pieces(self._server, self._keyspace, expire)

    async def queue(self, shard: int) -> QueueFigures:
        """The figures of a shard's queue and storage, at one moment. Raises StoreUnavailable."""
        _, *counts = await self._server.run(scripts.gauge, self._keyspace.all_shards()[shard])
        waiting, (oldest_ms, *others) = counts[:LEVELS], map(int, counts[LEVELS:])
        return QueueFigures(tuple(map(int, waiting)), oldest_ms / 1000, *others)

    def _keys(self, lease: Lease) -> TurnKeys:
        return self._keyspace.turn(lease.tenant, lease.id)


def _check_end(lease: Lease, turn: Turn) -> None:
    if turn.id != lease.id or turn.status not in TERMINAL:
        raise ValueError(f"{lease.id} can't end with {turn.id}, which is {turn.status}")


def _refuse_lease(word: bytes, detail: list[bytes], id: str) -> None:
    if word == b"lost":
        raise LeaseLost(id)
    if word == b"behind":
        raise LogBehind(id, int(detail[0]))


def _refuse_end(reply: list[bytes], turn: Turn) -> None:
    word, *detail = reply
    _refuse_lease(word, detail, turn.id)
    if word == b"steered":
        raise Steered(turn.id)
    if word == b"illegal":
        raise ValueError(f"{turn.id} is {detail[0].decode()} and can't become {turn.status}")
    if word == b"written":
        raise ValueError(f"the log of {turn.id} has event {detail[0].decode()}, so it can't end again")


def _job_of(row: bytes, token: str) -> Job:
    member, epoch, status, own, tries, last, *spans = row.decode().split()
    tenant, _, digits = member.partition("/")
    age, run, waited = (max(0, int(span)) / 1000 for span in spans)
    lease, priority = Lease(tenant, id_of(digits), token), Priority(int(own))
    return Job(lease, int(epoch), Status(status), int(tries), int(last), age, run, waited, priority)


def _waiting_of(row: str) -> WaitingTenant:
    tenant, level, jobs, ms = row.split()
    return WaitingTenant(tenant, int(level), int(jobs), max(0, int(ms)) / 1000)
