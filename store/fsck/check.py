"""The check of a store, and its repair: every turn is complete, and the counters match what is stored.

A check writes nothing: its scripts are read-only on the server. One script call judges a turn, so a sound store never
has a fault, however busy it is. The check of a shard inspects all its turns until the shard did not change meanwhile,
and then judges the sums. A sum holds if nothing was appended, used or removed during an inspection; the report names
the shards whose sums were not judged.

A repair finds each fault again before it changes anything, and the shards are checked again until nothing is wrong.
All that is derived is derived anew. A turn that lacks something of itself is taken out of memory with all that continue
it, where the archive has what it lacks: it comes back from there whole. Where nobody has it, only what can't be read
goes: no history is better than one with a hole. No repair is a deletion, by which an archive would lose the turn, too.
Never repair without being asked, nor a shard in which a later release has written.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping

import msgspec

from store import codec
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat
from store.fsck.faults import LACKING, MEANINGS, ORPHAN, UNREADABLE, Fault
from store.fsck.inspection import KINDS, Inspection, Judged, Moment, Shard, batches
from store.keys import COUNTERS, SECRET_BYTES, Keyspace, TurnKeys
from store.layout import Layout, Terms
from store.redis import scripts
from store.redis.connection import Client, Server

PRUNED = 100
"""The most turns that go with one tombstone in a call, and the most leaves by which a tree's last use is found."""

PASSES = 3
"""How often a shard is inspected, to find it unchanged."""

ROUNDS = 5
"""How often the store is repaired and checked again."""

MAX_FAULTS = 10_000
"""The most faults that a report keeps; it counts them all."""


Archived = Callable[[str, str], Awaitable[bool]]
"""Returns whether the archive has the turn of a tenant with some digits, and can be read there: it reads the turn.
Raises ArchiveUnavailable, ArchiveDamaged, NewerFormat where that is not known.
"""


class ShardRepair:
    """Repairs one shard, whose turns are `archived`, as far as there is an archive that can be asked."""

    def __init__(self, shard: Shard, archived: Archived | None) -> None:
        self._shard, self._archived = shard, archived
        self._keys = shard.keys
        self._lacking: list[Judged] = []
        self._lineage: list[str] = []

    async def repair_turns(self, faults: Iterable[Judged]) -> None:
        """Repair the faults of single turns, and remember those that concern the turns below them too.

        A deleted turn that nothing needs is removed, as the next sweep would.
        """
        members: list[str] = []
        for fault in faults:
            lacks = (UNREADABLE | LACKING).intersection(fault.words)
            if lacks:
                self._lacking.append(fault)
            if "lineage" in fault.words and UNREADABLE.isdisjoint(fault.words):
                self._lineage.append(fault.member)
            elif not lacks:
                members.append(fault.member)
        await self._repair(members)

    async def refit(
        self,
        misnamed: Mapping[str, list[bytes]],
        counters: Iterable[str] = (),
        mistyped: Iterable[str] = (),
        notes: Iterable[str] = (),
    ) -> None:
        """Repair the keys that all trees of the shard share.

        Removed are `misnamed` members that name no turn, by their key or TENANT/ROOT, `counters` that are no numbers,
        lines and orders of tenants that are `mistyped`, and `notes` that never expire.
        """
        kinds = KINDS | {name: "hash" if name.startswith("said:") else "zset" for name in mistyped}
        roots = [place for place in misnamed if not place.startswith(self._shard.base)]
        places = [place.removeprefix(self._shard.base) for place in misnamed if place not in roots]
        names = [name for place, found in misnamed.items() if place not in roots for name in found]
        await self._shard.server.run(
            scripts.refit,
            self._keys,
            kinds=" ".join(f"{name}={kind}" for name, kind in kinds.items()),
            places=" ".join(places),
            names=b"".join(name + b"\0" for name in names if b"\0" not in name),
            notes=" ".join(notes),
            counters=" ".join(counters),
            roots=" ".join(roots),
        )

    async def repair_trees(self, inspection: Inspection) -> None:
        """Repair the turns below the faulty ones of this inspection, which remembers all children."""
        circles = [member for member in self._lineage if _in_circle(inspection.children, member)]
        for top in set(self._lineage).difference(circles):  # so each names the tree in which it is
            await self._repair(below(inspection.children, top))
        tops = {each.member: _missing(each) for each in self._lacking} | dict.fromkeys(circles, "")
        for top, missing in tops.items():
            await self._take_out(top, missing, list(reversed(below(inspection.children, top))))
        self._lacking, self._lineage = [], []

    async def settle(
        self,
        since: str,
        sums: Mapping[str, Mapping[str, int]],
        counters: Mapping[str, int],
        events: tuple[str, int] | None,
    ) -> None:
        """Store the real sums, if the moment is still `since`: `sums` by the field in which turns, pictures and words
        have them; `events` has the noted bytes and the real ones.
        """
        last = {field: number for field, number in counters.items() if field in COUNTERS}
        tenants = (f"{field}={number}" for field, number in counters.items() if field not in last)
        nodes = (f"{member}/{field}={number}" for field, numbers in sums.items() for member, number in numbers.items())
        for some in batches(nodes):
            await self._settle(since, nodes=" ".join(some))
        if events is not None:
            await self._settle(since, events=f"{events[0]}={events[1]}")
        for some in batches(tenants):
            await self._settle(since, counters=" ".join(some))
        if last:
            await self._settle(since, counters=" ".join(f"{field}={number}" for field, number in last.items()))

    async def _repair(self, members: Iterable[str], *, alone: bool = False) -> None:
        """Repair turns; what they lack of themselves, where they are `alone` with that."""
        run, version = self._shard.server.run, codec.FORMAT
        for some in batches(members):
            named = " ".join(some)
            await run(scripts.repair, self._keys, members=named, version=version, alone=alone, budget=PRUNED)

    async def _take_out(self, top: str, missing: str, members: list[str]) -> None:
        """Take out of memory a turn that lacks something, and those below it. Only where neither memory nor the archive
        has what is `missing`, and the rest can be read, is the turn repaired by what is left of it. A turn that is in a
        circle misses nothing else.
        """
        archive = await self._told_of(missing or top)
        for some in batches(members):
            (word,) = await self._shard.server.run(
                scripts.discard,
                self._keys,
                top=top,
                members=" ".join(some),
                circle=not missing,
                archive=archive,
                version=codec.FORMAT,
            )
            if word == b"alone":
                await self._repair([top], alone=True)
            if word in (b"alone", b"sound"):
                return

    async def _told_of(self, member: str) -> str:
        """The word of the archive on a turn, as lua/discard.lua has it."""
        tenant, _, digits = member.partition("/")
        if self._archived is None:
            return "unknown"
        try:
            return "there" if await self._archived(tenant, digits) else "lacks"
        except ArchiveUnavailable:
            self._archived = None  # it is not waited for again
        except (ArchiveDamaged, NewerFormat):
            pass
        return "unknown"

    async def _settle(self, since: str, *, nodes: str = "", events: str = "", counters: str = "") -> None:
        await self._shard.server.run(
            scripts.settle, self._keys, since=since, nodes=nodes, events=events, counters=counters
        )


def below(children: Mapping[str, list[str]], top: str) -> list[str]:
    """A turn and all below it, parents first; each once, even where they go in a circle."""
    tenant = top.partition("/")[0]
    found = {top: None}
    row = [top]
    while row:
        row = [f"{tenant}/{digits}" for member in row for digits in children.get(member, ())]
        row = [member for member in row if member not in found]
        found.update(dict.fromkeys(row))
    return list(found)


def _missing(fault: Judged) -> str:
    """The turn of which something is missing: this one itself, or only the one that it continues."""
    tenant = fault.member.partition("/")[0]
    is_whole = ORPHAN in fault.words and not (UNREADABLE - {ORPHAN} | LACKING).intersection(fault.words)
    return f"{tenant}/{fault.parent}" if is_whole else fault.member


def _in_circle(children: Mapping[str, list[str]], member: str) -> bool:
    """Whether a turn is below itself."""
    digits = member.partition("/")[2]
    return any(digits in children.get(each, ()) for each in below(children, member))


class _Round:
    """One round over all shards: its counts and faults, and the shards whose sums could not be judged."""

    def __init__(self, number: int, *, repairs: bool, archived: Archived | None = None) -> None:
        self.number = number
        self.repairs, self.archived = repairs, archived
        self.turns = self.newer = self.unknown = self.unneeded = self.found = 0
        self.unjudged: list[int] = []
        self.faults: set[Fault] = set()

    def is_new(self, fault: Fault) -> bool:
        """Note a fault; whether it is new, as far as faults are kept."""
        if fault in self.faults:
            return False
        self.found += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.add(fault)
        return True

    def count(self, inspection: Inspection) -> None:
        """Add the counts of a shard."""
        self.turns += inspection.turns
        self.newer += inspection.newer
        self.unknown += inspection.unknown
        self.unneeded += inspection.unneeded


class _ShardCheck:
    """The check of a shard with about `total` turns, which are repaired in a round that repairs."""

    def __init__(self, shard: Shard, wanted: _Round) -> None:
        self._shard = shard
        self._round = wanted
        self._repair = ShardRepair(shard, wanted.archived) if wanted.repairs else None
        self.total = 0

    async def run(self) -> AsyncGenerator[Fault | int]:
        """Faults as they are found, some more than once, and between them how many turns were judged so far."""
        shared = await self._shared_faults()
        for fault in shared:
            yield fault
        if any(fault.what == "shared-type" for fault in shared):
            self._round.unjudged.append(self._shard.number)
            if self._repair is not None:
                await self._repair.refit({})
            return  # no other script runs on it, so nothing else can be judged yet
        if self._repair is not None:
            counters = await self._shard.counters()
            await self._repair.refit({}, [field for field, number in counters.items() if number is None])
        self.total = await self._shard.total()
        remembers_children = self._repair is not None
        inspection = Inspection(self._shard, remembers_children)
        for _ in range(PASSES):
            inspection, before = Inspection(self._shard, remembers_children), await self._shard.moment()
            async for step in self._inspect(inspection):
                yield step
            noted, after = await self._shard.counters(), await self._shard.moment()
            if (before.process, before.sums) == (after.process, after.sums):
                async for fault in self._sums(inspection, before, noted, judges_events=before == after):
                    yield fault
                break
        else:
            self._round.unjudged.append(self._shard.number)
        self._round.count(inspection)

    async def _shared_faults(self) -> list[Fault]:
        """The faults of the keys that all trees share. The clock is read last, as it only rises."""
        wrong: list[Fault] = []
        for name, kind in KINDS.items():
            found = await self._shard.type_of(name)
            if found not in (kind, "none"):
                wrong.append(self._shard.fault("shared-type", detail=f"{name} is a {found}"))
        if wrong:
            return wrong
        async with self._shard.server.operation() as operation:
            last = await operation.command("ZREVRANGE", self._shard.keys.trees, 0, 0, "WITHSCORES")
            secret = await operation.command("GET", self._shard.keys.secret)
            clock = await operation.command("GET", self._shard.keys.clock) or b"0"
        if not clock.isdigit() or (last and int(clock) < float(last[1])):
            wrong.append(self._shard.fault("clock"))
        if secret is not None and len(secret) != SECRET_BYTES:
            wrong.append(self._shard.fault("secret", detail=f"it has {len(secret)} bytes"))
        return wrong

    async def _inspect(self, inspection: Inspection) -> AsyncGenerator[Fault | int]:
        async for faulty in inspection.run():
            for turn in faulty:
                for word in filter(MEANINGS.__contains__, turn.words):
                    yield self._shard.fault(word, turn.member)
            if self._repair is not None:
                await self._repair.repair_turns(faulty)
            yield inspection.turns
        for place in inspection.misnamed:
            name = place.removeprefix(self._shard.base)
            yield self._shard.fault("misnamed", detail="in " + ("the tree of " if "/" in name else "") + name)
        for name in inspection.mistyped:
            yield self._shard.fault("shared-type", detail=f"{name} is no zset")
        for name in inspection.endless:
            yield self._shard.fault("endless-note", detail=name)
        if self._repair is not None:
            await self._repair.repair_trees(inspection)
            await self._repair.refit(inspection.misnamed, mistyped=inspection.mistyped, notes=inspection.endless)

    async def _sums(
        self, inspection: Inspection, moment: Moment, noted: dict[str, int | None], *, judges_events: bool
    ) -> AsyncGenerator[Fault]:
        """The wrong sums of a shard that did not change since `moment`."""
        children: dict[str, int] = {}
        for member in inspection.suspects():
            counted = await self._children_noted(member)
            children[member] = (-1 if counted is None else counted) - inspection.balance(member)
            yield self._shard.fault("children", member, f"counts {counted}, has {children[member]}")
        jobs = inspection.wrong_jobs()
        for member, number in jobs.items():
            yield self._shard.fault("jobs", member, f"counts {inspection.jobs_noted(member)}, has {number}")
        pictures = inspection.wrong_pictures()
        for member, (counts, number) in pictures.items():
            tenant, _, digest = member.partition("/")
            yield self._shard.fault("picture", f"{tenant}/", f"{digest} counts {counts}, has {number}")
        words = inspection.wrong_words()
        for member, (counts, number) in words.items():
            tenant, _, field = member.partition("/")
            yield self._shard.fault("words", f"{tenant}/", f"{field} counts {counts}, has {number}")
        counters = inspection.wrong_counters(noted)
        for field, number in counters.items():
            yield self._shard.fault("usage", detail=f"{field} is {noted.get(field, 0)}, not {number}")
        events = None
        if judges_events and moment.logged != b"%d" % inspection.events:
            events = moment.logged.decode("utf-8", "replace"), inspection.events
            yield self._shard.fault("usage", detail=f"logged is {events[0]}, not {events[1]}")
        if self._repair is not None:
            shown, said = ({each: number for each, (_, number) in wrong.items()} for wrong in (pictures, words))
            sums = {"children": children, "jobs": jobs, "turns": shown, "said": said}
            await self._repair.settle(moment.sums, sums, counters, events)

    async def _children_noted(self, member: str) -> int | None:
        tenant, _, digits = member.partition("/")
        node = TurnKeys(self._shard.keys, tenant, digits).key("node")
        number = await self._shard.server.command("HGET", node, "children")
        return int(number) if number and number.removeprefix(b"-").isdigit() else None


class CheckProgress(msgspec.Struct, frozen=True):
    """How far the check is: `turns` judged in this shard, of about `total`; `round` is 0, or that of a repair."""

    shard: int
    turns: int
    total: int
    round: int


class CheckReport(msgspec.Struct, frozen=True):
    """The result over all shards: `found` faults in the first round, and `left` in the last.

    `faults` says of each whether it is repaired. `unjudged` are the shards whose sums were not judged. `unneeded` turns
    are deleted, and go with the next sweep. `newer` turns were written by a later release, and not judged. `unknown`
    counts the keys under the prefix that are not the store's.
    """

    shards: int
    turns: int
    faults: dict[Fault, bool]
    found: int
    left: int
    unjudged: list[int]
    unneeded: int
    newer: int
    unknown: int
    seconds: float


class Fsck:
    """Checks a store, and repairs it."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "harmonium",
        shards: int = 1,
        timeout_seconds: float = 2.0,
        attempts: int = 3,
        turns_per_second: float = 0.0,
        archived: Archived | None = None,
    ) -> None:
        """A check over `redis`, which it closes.

        `turns_per_second` is its pace; 0 is as fast as the server answers. A repair asks whether a turn is `archived`;
        where nobody can be asked, and the store has an archive, no turn that lacks something is touched. Raises
        ValueError for a setting that can't work.
        """
        if turns_per_second < 0:
            raise ValueError(f"{turns_per_second=} must be positive, or 0 for no pace")
        keyspace = Keyspace(prefix, shards)
        self._archived = archived
        self._server = Server(redis, timeout_seconds=timeout_seconds, attempts=attempts)
        self._layout = Layout(self._server, prefix, Terms(shards))
        self._shards = [Shard(self._server, keyspace, number, turns_per_second) for number in range(shards)]

    async def run(self, *, repair: bool = False) -> AsyncGenerator[CheckProgress | Fault | CheckReport]:
        """Check, and repair if asked to: each fault when it is first found, and in the end the report.

        Raises LayoutMismatch where a release like this one can't judge the store, or not with so few shards, and
        StoreUnavailable.
        """
        began = time.monotonic()
        await self._layout.check()
        first = last = _Round(0, repairs=False)
        async for step in self._go(first):
            yield step
        for number in range(1, ROUNDS + 1):
            if not repair or last.newer or not (last.found or last.unneeded):
                break
            before, last = last, _Round(number, repairs=False)
            for each in (_Round(number, repairs=True, archived=self._archived), last):
                async for step in self._go(each):
                    if isinstance(step, CheckProgress):
                        yield step
            if last.faults == before.faults:
                break  # what is left waits for an archive, or for whoever deletes it
        yield self._report(first, last, time.monotonic() - began)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _go(self, wanted: _Round) -> AsyncGenerator[CheckProgress | Fault]:
        for shard in self._shards:
            check = _ShardCheck(shard, wanted)
            async for step in check.run():
                if isinstance(step, int):
                    yield CheckProgress(shard.number, step, max(step, check.total), wanted.number)
                elif wanted.is_new(step):
                    yield step

    def _report(self, first: _Round, last: _Round, seconds: float) -> CheckReport:
        repaired = {each: each not in last.faults for each in _in_order(first.faults)}
        return CheckReport(
            shards=len(self._shards),
            turns=last.turns,
            faults=repaired | dict.fromkeys(_in_order(last.faults - first.faults), False),
            found=first.found,
            left=last.found,
            unjudged=last.unjudged,
            unneeded=last.unneeded,
            newer=last.newer,
            unknown=last.unknown,
            seconds=seconds,
        )


def _in_order(faults: Iterable[Fault]) -> list[Fault]:
    rank = {word: place for place, word in enumerate(MEANINGS)}
    return sorted(faults, key=lambda each: (each.shard, rank[each.what], each.id or "", each.detail))
