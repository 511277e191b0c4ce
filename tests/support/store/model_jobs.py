"""Jobs as plain Python, beside the turns of model.py: a queue of lists, holders, logs, and rules that do it to both.

Every job that is claimed has to be the one that this queue names. Each status is looked at after every step, and has to
have come there by a row of store/turn.py. Whoever lost a lease tries his luck again and again, and changes nothing.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from store.errors import (
    ChainTooLong,
    Conflict,
    LeaseLost,
    LogBehind,
    LogFull,
    NotCancellable,
    NotFound,
    NotSteerable,
    QueueFull,
    Steered,
    SteersFull,
    StoreFull,
)
from store.jobs.jobs import MAX_STEERS, Jobs
from store.jobs.log import EventLog, LogEntry
from store.jobs.model import LEVELS, WINDOWS, JobLimits, Lease, Priority, Steer, Successor
from store.turn import MOVES, Status, Turn
from tests.support.store.audit import dump
from tests.support.store.model import ENDED, TENANTS, Model, Stored, pictured
from tests.support.store.sample import turn, with_words
from tests.support.store.work import ACCEPTED, age, date_log, fall_silent, queued

RESUMED = 0
HURRY = 1_000_000
TURNS = ({Priority.PRIORITY}, {RESUMED, Priority.DEFAULT, Priority.FLEX}, {*WINDOWS})
"""The levels at which tenants take turns together, in the order in which their jobs start."""
HOURS_PART = 2
ENTRY_BYTES = 32
PRIORITIES = tuple(Priority)
DEEDS = ("submit", "submit", "age", "claim", "claim", "write", "finish", "finish", "hand back", "be silent", "cancel")
LIMITS = JobLimits(lease_seconds=600.0, first_seconds=600.0, waiting=6, log_bytes=1_000)
OLD_LEASES = 6
DAY_SECONDS = 86_400.0


@dataclass
class Work:
    """A job, while it is under way."""

    tenant: str
    own: int
    number: tuple[int, int]
    level: int | None
    token: str = ""
    silent: bool = False
    epoch: int = 0
    tries: int = 0
    heard: bool = True
    progressed: bool = False
    steerable: bool = False
    steers: list[Steer] = field(default_factory=list)

    @property
    def this_try(self) -> int:
        """How many holders in a row got no further, with this one, whether or not he was heard of."""
        return self.tries if self.heard else 1 if self.progressed else self.tries + 1

    def hear(self) -> None:
        """The holder says something: from then on it is a try."""
        if not self.heard:
            self.tries, self.heard, self.progressed = self.this_try, True, False


@dataclass
class Log:
    """What there is of a response's events."""

    entries: list[LogEntry]
    kept: bool
    snapshot: tuple[int, bytes] | None = None
    ended: float | None = None

    @property
    def last(self) -> int:
        return self.entries[-1].last

    @property
    def size(self) -> int:
        """Its bytes, by the account of store/redis/lua/logs.lua."""
        snapshot = len(b"%d %b" % self.snapshot) if self.snapshot else 0
        return sum(len(entry.blob) + ENTRY_BYTES for entry in self.entries) + snapshot


@dataclass
class Row:
    """Some levels of the queue: each tenant's line at each, and the tenants in the order in which they take turns."""

    levels: set[int]
    turns: list[str] = field(default_factory=list)
    lines: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    def next_of(self, tenant: str) -> str | None:
        """The job of a tenant that starts next."""
        return next((line[0] for level in sorted(self.levels) if (line := self.lines.get((tenant, level)))), None)


LEASES = st.runner().flatmap(lambda machine: st.sampled_from(machine.chances()))
"""A lease, mostly of somebody who holds it."""


class Asked(NamedTuple):
    """How a job is submitted."""

    priority: Priority
    streams: bool
    fleeting: bool
    group: str
    hurries: bool = False

    @property
    def steerable(self) -> bool:
        return self.streams and not self.fleeting


ASKED = st.builds(
    Asked,
    st.sampled_from(Priority),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
    st.sampled_from(["", "", "a", "b"]),
    st.booleans(),
)

JOBS = st.runner().flatmap(lambda machine: st.sampled_from(list(machine.seen)[-OLD_LEASES:] + list(machine.work)))
"""A response in the background, mostly one that is under way."""

claimed_before = precondition(lambda machine: machine.leases)
submitted_before = precondition(lambda machine: machine.seen)


def _is_full(waiting: list[Work], tenant: str, most: int) -> bool:
    """Whether of so many places a tenant gets no more, beside those that wait: one that has none finds one beyond."""
    own = any(work.tenant == tenant for work in waiting)
    return len(waiting) >= most + (0 if own else max(1, most // 8))


class Jobbing(Model):
    """Rules about jobs, among those about turns."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Jobs(self.store, LIMITS)
        self.log = EventLog(self.store)
        self.work: dict[str, Work] = {}
        self.logs: dict[str, Log] = {}
        self.rows = [Row(set(levels)) for levels in TURNS]
        self.numbers = 0
        self.groups: dict[tuple[str, str], tuple[int, int]] = {}
        self.aged: dict[str, int] = {}
        self.leases: list[Lease] = []
        self.seen: dict[str, Status] = {}
        self.said = 0

    def chances(self) -> list[Lease]:
        """The last leases, whoever holds them now, and twice as many that are held."""
        return [*self.leases[-OLD_LEASES:], *[lease for lease in self.leases if self.holds(lease)] * 3]

    # the queue

    def enqueue(self, id: str, level: int, *, last: bool = False) -> None:
        work, row = self.work[id], self.row_of(level)
        work.level, work.token, work.silent = level, "", False
        if work.tenant not in row.turns:
            row.turns.insert(len(row.turns) if last else 0, work.tenant)
        line = row.lines.setdefault((work.tenant, level), [])
        line.append(id)
        line.sort(key=lambda each: self.work[each].number)

    def row_of(self, level: int) -> Row:
        return next(row for row in self.rows if level in row.levels)

    def next_tenants(self) -> list[tuple[str, int, int]]:
        return [
            (tenant, level, len(line))
            for level in range(LEVELS)
            for tenant in self.row_of(level).turns
            if (line := self.row_of(level).lines.get((tenant, level), []))
        ]

    def dequeue(self, id: str) -> None:
        work = self.work[id]
        if work.level is not None:
            self.row_of(work.level).lines[work.tenant, work.level].remove(id)
            work.level = None

    def put_back(self, id: str, *, gives_way: bool = False) -> None:
        """Before all of its tenant that have not begun, which nothing is before at the first priority."""
        own = self.work[id].own
        self.enqueue(id, own if gives_way or own == Priority.PRIORITY else RESUMED, last=gives_way)

    def next_job(self) -> str | None:
        for row in self.rows:
            while row.turns:
                tenant = row.turns.pop(0)
                if found := row.next_of(tenant):
                    row.turns.append(tenant)
                    return found
        return None

    def take(self, id: str, token: str) -> None:
        self.dequeue(id)
        work = self.work[id]
        work.token, work.silent, work.epoch = token, False, work.epoch + 1

    # logs

    def end_log(self, id: str) -> None:
        del self.logs[id]
        if self.turns[id].fleeting:
            self.remove(id)  # a deleted turn that it alone kept goes with the next sweep

    def log_has_room(self, size: int) -> bool:
        """Take logs of what has ended away until so many bytes fit."""
        while sum(log.size for log in self.logs.values()) + size > LIMITS.log_bytes:
            ended = [id for id, log in self.logs.items() if log.ended is not None]
            if not ended:
                return False
            self.end_log(min(ended, key=lambda id: (self.logs[id].ended, f"{self.turns[id].tenant}/{id}")))
        return True

    def drop_log(self, id: str) -> None:
        self.logs.pop(id, None)

    def remove(self, id: str) -> str | None:
        self.drop_log(id)
        return super().remove(id)

    def take_tree(self, root: str) -> None:
        super().take_tree(root)
        self.logs = {id: log for id, log in self.logs.items() if id in self.turns}

    # rules

    @rule(
        target=Model.ids,
        tenant=st.sampled_from(TENANTS),
        parent=st.none() | Model.ids,
        pinned=st.none() | Model.pins,
        asked=ASKED,
    )
    def submit(self, tenant: str, parent: str | None, pinned: tuple[str, str] | None, asked: Asked) -> str:
        parent, pin = pinned or (parent, None)
        return self.accept(self.owner_of(parent) if parent else tenant, parent, pin, asked)

    def accept(self, tenant: str, parent: str | None, pin: str | None, asked: Asked) -> str:
        id = self.store.new_id(parent)
        self.owners[id] = tenant
        submitted, how = pictured(queued(id, parent, text=id)), asked._asdict()
        accepting = self.jobs.submit(
            tenant, submitted, id.encode(), ACCEPTED, **how, steerable=asked.steerable, pin=pin
        )
        refusal = QueueFull if self.queue_is_full(tenant, asked.priority) else parent and self.refusal(parent, pin)
        if not refusal and not self.has_room(tenant, parent):
            refusal = StoreFull
        if refusal:
            with pytest.raises(refusal):
                self.run(accepting)
            return id
        self.run(accepting)
        if parent is not None:
            self.turns[parent].pins.discard(pin or "")
        self.numbers += 1
        number = self.numbers, 0
        if asked.hurries:
            number = self.numbers - HURRY, 0
        elif group := asked.group:  # it stands behind the others of its group, where the first of them did
            first, behind = self.groups.get((tenant, group), (self.numbers, -1))
            number = self.groups[tenant, group] = first, behind + 1
        work = Work(tenant, asked.priority.value, number, None, steerable=asked.steerable)
        self.admit(id, parent, work, Log([ACCEPTED], kept=asked.streams or asked.fleeting), fleeting=asked.fleeting)
        return id

    def admit(self, id: str, parent: str | None, work: Work, log: Log, *, fleeting: bool = False) -> None:
        """A job was accepted."""
        root = id if parent is None else self.turns[parent].root
        self.turns[id] = Stored(parent, root, Status.QUEUED, 0, tenant=work.tenant, under_way=True, fleeting=fleeting)
        self.use(id)
        self.seen[id], self.work[id], self.logs[id] = Status.QUEUED, work, log
        self.enqueue(id, work.own)

    def queue_is_full(self, tenant: str, priority: int) -> bool:
        waiting = [work for work in self.work.values() if work.level is not None]
        with_hours = [work for work in waiting if work.level in WINDOWS]
        return _is_full(waiting, tenant, LIMITS.waiting) or (
            priority in WINDOWS and _is_full(with_hours, tenant, LIMITS.waiting // HOURS_PART)
        )

    def has_room(self, tenant: str, parent: str | None) -> bool:
        return self.evicts_enough(tenant, trees=parent is None, kept=parent) and self.log_has_room(
            len(ACCEPTED.blob) + ENTRY_BYTES
        )

    @rule(id=Model.ids | JOBS)
    @submitted_before
    def submit_again(self, id: str) -> None:
        if id not in self.turns:
            return
        tenant, parent, again = self.turns[id].tenant, self.turns[id].parent, self.jobs.submit
        if id in self.seen:
            self.run(again(tenant, pictured(queued(id, parent, text=id)), b"other", ACCEPTED))
        with pytest.raises(Conflict):
            self.run(again(tenant, queued(id, parent, text="other"), b"other", ACCEPTED))

    @rule(deeds=st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 99)), min_size=3, max_size=8))
    def be_busy(self, deeds: list[tuple[str, int]]) -> None:
        """Some things in a row, by whoever happens to hold a lease, or held one."""
        for deed, choice in deeds:
            held = [lease for lease in self.leases if self.holds(lease)]
            lease = (held or self.leases or [None])[choice % len(held or self.leases or [None])]
            match deed, lease:
                case "submit", _:
                    priority, group = PRIORITIES[choice // 3 % len(PRIORITIES)], "ab"[choice % 2] if choice % 3 else ""
                    asked = Asked(priority, choice % 2 == 0, choice > 90, group, hurries=choice % 5 == 0)
                    self.accept(TENANTS[choice % 3], None, None, asked)
                case "age", _ if self.work:
                    self.grow_old(list(self.work)[choice % len(self.work)])
                case "claim", _:
                    self.claim(1 + choice % 2)
                case "write", Lease():
                    self.write(lease, 10 * (choice % 20), progress=choice % 3 > 0, snapshot=0)
                case "finish", Lease():
                    self.finish(lease, ENDED[choice % len(ENDED)], announced=False)
                case "hand back", Lease():
                    self.hand_back(lease, failed=choice % 2 == 0)
                case "be silent", Lease():
                    self.be_silent(lease)
                case "cancel", Lease():
                    self.cancel(lease.id)
                case _:
                    pass

    @rule(id=JOBS)
    @submitted_before
    def grow_old(self, id: str) -> None:
        """The hours of a job are over, whether it waits or runs; the older one is the one that grew old later."""
        if id in self.work and id not in self.aged:
            self.aged[id] = len(self.aged)
            self.run(age(self.jobs, id, DAY_SECONDS + self.aged[id], self.work[id].tenant))

    @rule(most=st.integers(0, 3))
    def claim_some(self, most: int) -> None:
        self.claim(most)

    def claim(self, most: int) -> list[Lease]:
        silent = [id for id, work in self.work.items() if work.silent]
        closings: list[str] = []  # cancelled by somebody who is gone: these come besides
        for id in sorted(silent, key=lambda id: f"{self.work[id].tenant}/{id}"):
            if self.turns[id].status is Status.CANCELLED:
                closings.append(id)
            else:
                self.put_back(id)
        for level in WINDOWS:
            late = (id for id in self.aged if id in self.work and self.work[id].level == level)
            for id in sorted(late, key=self.aged.__getitem__, reverse=True):
                self.dequeue(id)
                self.work[id].own = Priority.DEFAULT
                self.enqueue(id, Priority.DEFAULT)
        found = self.run(self.jobs.claim(0, most))
        if not most:
            assert [(each.tenant, each.level, each.jobs) for each in found.waiting] == self.next_tenants()
        token = found.jobs[0].lease.token if found.jobs else ""
        for id in closings:
            self.begin(id, token)
        expected = list(closings)
        while len(expected) < most + len(closings) and (next_job := self.next_job()):
            expected.append(next_job)
            self.begin(next_job, token)
        assert [job.lease.id for job in found.jobs] == expected
        assert found.rescued in (0, len(silent))  # a repeat rescues nobody
        for job in found.jobs:
            work = self.work[job.lease.id]
            assert job.lease.tenant == work.tenant
            assert self.run(self.jobs.spec(job.lease)) == job.lease.id.encode()
            assert (job.epoch, job.tries, job.last) == (work.epoch, work.this_try, self.logs[job.lease.id].last)
            assert (job.status, job.priority) == (self.turns[job.lease.id].status, work.own)
        self.leases += [job.lease for job in found.jobs]
        return [job.lease for job in found.jobs]

    def begin(self, id: str, token: str) -> None:
        work = self.work[id]
        self.take(id, token)
        work.heard = False
        if self.turns[id].status is Status.QUEUED:
            self.turns[id].status = Status.IN_PROGRESS

    def holds(self, lease: Lease) -> bool:
        work = self.work.get(lease.id)
        return work is not None and work.token == lease.token

    @rule(lease=LEASES, size=st.sampled_from([10, 300]), progress=st.booleans(), snapshot=st.sampled_from([0, 0, 200]))
    @claimed_before
    def write(self, lease: Lease, size: int, progress: bool, snapshot: int) -> None:
        log = self.logs.get(lease.id)
        entry = LogEntry((log.last if log else 1) + 3, b"x" * size)
        taken = b"s" * snapshot
        writing = self.jobs.write(lease, entry, after=log and log.last, progress=progress, snapshot=taken)
        if not self.holds(lease) or log is None:
            with pytest.raises(LeaseLost):
                self.run(writing)
            return
        grown = Log([*log.entries, entry], log.kept, (entry.last, taken) if taken else log.snapshot)
        if not self.log_has_room(grown.size - log.size):
            with pytest.raises(LogFull):
                self.run(writing)
            return
        self.run(writing)
        self.logs[lease.id] = grown
        work = self.work[lease.id]
        work.hear()
        work.progressed, work.silent = work.progressed or progress, False

    @rule(lease=LEASES)
    @claimed_before
    def write_again(self, lease: Lease) -> None:
        if self.holds(lease):
            self.run(self.jobs.write(lease, self.logs[lease.id].entries[-1]))

    @rule(lease=LEASES)
    @claimed_before
    def write_behind_what_is_gone(self, lease: Lease) -> None:
        if self.holds(lease):
            last = self.logs[lease.id].last
            with pytest.raises(LogBehind):
                self.run(self.jobs.write(lease, LogEntry(last + 9, b"more"), after=last + 5))

    @rule(lease=LEASES, status=st.sampled_from(ENDED), announced=st.booleans())
    @claimed_before
    def finish(self, lease: Lease, status: Status, announced: bool) -> None:
        id = lease.id
        stored = self.turns.get(id)
        if stored and stored.status is Status.CANCELLED and self.holds(lease):
            status = Status.CANCELLED
        log = self.logs.get(id)
        entry = LogEntry((log.last if log else 1) + 2, b"the end")
        done = self.done(id, status)
        steers = self.work[id].steers if id in self.work else []
        finishing = self.jobs.finish(lease, done, entry, announced=announced, steers=steers)
        if not self.holds(lease) or stored is None or log is None:
            if stored and not stored.under_way and stored.status is status:
                self.run(finishing)  # the same end once more, which is harmless whoever sends it
                return
            with pytest.raises(LeaseLost):
                self.run(finishing)
            return
        if (status is Status.CANCELLED) != (stored.status is Status.CANCELLED):
            with pytest.raises(ValueError, match="can't become"):
                self.run(finishing)
            return
        if steers:
            with pytest.raises(Steered):
                self.run(self.jobs.finish(lease, done, entry, announced=announced))
        self.run(finishing)
        self.end(id, status, entry)

    def done(self, id: str, status: Status) -> Turn:
        """The turn with which a job ends, with words of its own."""
        parent = self.turns[id].parent if id in self.turns else None
        return with_words(
            pictured(turn(id, parent, text=id, status=status)), blake2b(id.encode(), digest_size=16).digest()
        )

    def end(self, id: str, status: Status, entry: LogEntry) -> None:
        """A job has ended."""
        stored, log = self.turns[id], self.logs.pop(id)
        del self.work[id]
        stored.status, stored.under_way = status, False
        self.use(id)
        self.note_words(self.done(id, status))
        if log.kept:
            member = f"{stored.tenant}/{id.removeprefix('resp_')}"
            ended = self.run(self.redis.zscore(f"{self.prefix}:{{00}}:logs", member))
            self.logs[id] = Log([*log.entries, entry], kept=True, ended=ended)

    @rule(id=Model.ids | JOBS)
    @submitted_before
    def steer(self, id: str) -> None:
        self.said += 1
        one = Steer(f"steer_{self.said:06}", b"more")
        saying, work = self.jobs.steer(self.owner_of(id), id, one), self.work.get(id)
        refusal: type[Exception] | None = None
        if not self.readable(id):
            refusal = NotFound
        elif work is None or not work.steerable or self.turns[id].status is Status.CANCELLED:
            refusal = NotSteerable
        elif len(work.steers) >= MAX_STEERS:
            refusal = SteersFull
        if refusal is not None:
            with pytest.raises(refusal):
                self.run(saying)
        elif work is not None:
            self.run(saying)
            self.run(self.jobs.steer(self.owner_of(id), id, one))
            work.steers.append(one)

    @rule(target=Model.ids, lease=LEASES)
    @claimed_before
    def succeed(self, lease: Lease) -> str:
        """End a job with another one that goes on from it, whether or not anything was said to it."""
        id, next_id = lease.id, self.store.new_id(lease.id)
        self.owners[next_id] = lease.tenant
        log, work, stored = self.logs.get(id), self.work.get(id), self.turns.get(id)
        entry = LogEntry((log.last if log else 1) + 2, b"the end")
        done = self.done(id, Status.INCOMPLETE)
        successor = Successor(pictured(queued(next_id, id, next_id)), next_id.encode(), ACCEPTED)
        steers = work.steers if work else []
        succeeding = self.jobs.succeed(lease, done, entry, successor, steers=steers)
        refusal: type[Exception] | None = None
        if work is None or log is None or stored is None or not self.holds(lease):
            refusal = LeaseLost
        elif stored.status is Status.CANCELLED:
            refusal = ValueError
        elif stored.fleeting:
            self.run(self.jobs.renew([lease]))  # it can't be steered, so nobody asks for that
            succeeding.close()
            self.work[id].silent = False
            work.hear()
            return next_id
        elif self.queue_is_full(lease.tenant, work.own):
            refusal = QueueFull
        elif self.too_long(id):
            refusal = ChainTooLong
        elif not self.has_room(lease.tenant, id):
            refusal = StoreFull
        if refusal is not None or work is None or log is None:
            with pytest.raises(refusal or LeaseLost):
                self.run(succeeding)
            return next_id
        self.run(succeeding)
        self.end(id, Status.INCOMPLETE, entry)
        following = Work(work.tenant, work.own, work.number, None, steerable=True)
        self.admit(next_id, id, following, Log([ACCEPTED], kept=log.kept))
        return next_id

    @rule(lease=LEASES, failed=st.booleans(), gives_way=st.booleans())
    @claimed_before
    def hand_back(self, lease: Lease, failed: bool, gives_way: bool = False) -> None:
        self.run(self.jobs.hand_back(lease, failed=failed, gives_way=gives_way))
        if self.holds(lease):
            work = self.work[lease.id]
            if failed:
                work.hear()
            elif work.heard:
                work.tries -= 1
            work.heard = True
            self.put_back(lease.id, gives_way=gives_way)

    @rule(some=st.lists(LEASES, max_size=3, unique_by=lambda lease: lease.id))
    @claimed_before
    def renew(self, some: list[Lease]) -> None:
        lost = self.run(self.jobs.renew(some)).lost
        assert lost == [lease for lease in some if not self.holds(lease)]
        for lease in some:
            if self.holds(lease):
                self.work[lease.id].silent = False
                self.work[lease.id].hear()

    @rule(lease=LEASES)
    @claimed_before
    def be_silent(self, lease: Lease) -> None:
        if self.holds(lease):
            self.run(fall_silent(self.jobs, lease.id, lease.tenant))
            self.work[lease.id].silent = True

    @rule(id=Model.ids | JOBS)
    @submitted_before
    def cancel(self, id: str) -> None:
        tenant = self.owner_of(id)
        cancelling = self.jobs.cancel(tenant, id)
        stored = self.turns.get(id)
        if stored is None or not self.readable(id):
            with pytest.raises(NotFound):
                self.run(cancelling)
        elif id not in self.seen:
            with pytest.raises(NotCancellable, match="not made in the background"):
                self.run(cancelling)
        elif stored.status is Status.CANCELLED:
            assert self.run(cancelling) is None
        elif not stored.under_way:
            with pytest.raises(NotCancellable, match=f"is {stored.status}"):
                self.run(cancelling)
        else:
            job = self.run(cancelling)
            assert job is not None
            self.take(id, job.lease.token)
            work = self.work[id]
            work.tries, work.heard, work.progressed, stored.status = 1, True, False, Status.CANCELLED
            assert (job.epoch, job.tries, job.last) == (work.epoch, 1, self.logs[id].last)
            self.leases.append(job.lease)

    @rule(id=JOBS)
    @submitted_before
    def expire_a_log(self, id: str) -> None:
        log = self.logs.get(id)
        if log and log.ended is not None:
            self.run(date_log(self.jobs, id, tenant=self.turns[id].tenant))
            self.run(self.jobs.expire_logs())
            self.end_log(id)

    # what holds after every step

    @invariant()
    def each_status_came_by_a_move_of_the_table(self) -> None:
        found = self.run(dump(self.redis, self.prefix))
        for key, node in found.items():
            if ":node:" not in key or b"background" not in node:
                continue
            id, status = f"resp_{key.rpartition(':')[2]}", Status(node[b"status"].decode())
            before = self.seen[id]
            passed = Status.IN_PROGRESS if before is Status.QUEUED else before
            legal = {before, *MOVES.get(before, {}), *MOVES.get(passed, {})}
            assert status in legal, (before, status)
            assert status is self.turns[id].status
            self.seen[id] = status

    @invariant()
    def the_queue_is_the_model_s(self) -> None:
        queue = self.run(self.jobs.queue(0))
        levels = [work.level for work in self.work.values()]
        assert queue.waiting == tuple(levels.count(level) for level in range(LEVELS))
        assert queue.running == levels.count(None)
        assert queue.log_bytes == sum(log.size for log in self.logs.values())

    @invariant()
    def logs_are_the_model_s(self) -> None:
        for id in chain(self.logs, self.turns.keys() - self.logs.keys()):
            log, tenant = self.logs.get(id), self.turns[id].tenant
            assert self.run(self.log.read(tenant, id, -1, 100)) == (log.entries if log else [])
            assert self.run(self.jobs.snapshot(tenant, id)) == (log.snapshot if log else None)
