"""The check of one shard: inspects all its turns until the shard did not change meanwhile, and then judges the sums.

A sum holds if nothing was appended, used or removed during an inspection. On a shard that changes all the time the
children of a turn can still be counted: a tree that was not used since the inspection began has got no child since.
"""

from collections.abc import AsyncGenerator

from store.fsck.faults import MEANINGS, Fault
from store.fsck.inspection import Inspection, TurnFaults
from store.fsck.repair import Repair
from store.fsck.scan import KINDS, Shard
from store.keys import SECRET_BYTES, TurnKeys
from store.redis import scripts

PASSES = 3
"""How often a shard is inspected, to find it unchanged."""

MAX_CHILDREN = 1_000
"""The most children that one script call counts, on a shard that changes."""


class Tally:
    """What the checks of several shards have counted, and the shards whose sums could not be judged."""

    def __init__(self) -> None:
        self.turns = self.newer = self.unknown = self.unneeded = 0
        self.unjudged: list[int] = []


class ShardCheck:
    """The check of a shard with about `total` turns; what it finds is repaired if there is a `repair`."""

    def __init__(self, shard: Shard, tally: Tally, repair: Repair | None) -> None:
        self._shard = shard
        self._tally = tally
        self._repair = repair
        self.total = 0

    async def run(self) -> AsyncGenerator[Fault | int]:
        """Faults as they are found, some more than once, and between them how many turns were judged so far."""
        shared = await self._shared()
        for fault in shared:
            yield fault
        if any(fault.what == "shared-type" for fault in shared):
            self._tally.unjudged.append(self._shard.number)
            if self._repair is not None:
                await self._repair.refit({})
            return  # no other script runs on it, so nothing else can be judged yet
        if self._repair is not None:
            counters = await self._shard.counters()
            await self._repair.refit({}, [field for field, number in counters.items() if number is None])
        self.total = await self._shard.total()
        inspection, since, still = Inspection(self._shard), "", False
        for _ in range(PASSES):
            inspection = Inspection(self._shard, None if self._repair else inspection.suspects())
            process, since = await self._shard.process(), await self._shard.moment()
            events = await self._shard.events_moment()
            async for step in self._inspect(inspection):
                yield step
            noted = await self._shard.counters()
            added = events != await self._shard.events_moment()
            still = (process, since) == (await self._shard.process(), await self._shard.moment())
            if still:
                async for fault in self._sums(inspection, since, noted, None if added else events[0]):
                    yield fault
                break
        self._count(inspection, still)
        if not still:
            async for fault in self._children(inspection, since):
                yield fault

    async def _shared(self) -> list[Fault]:
        """What is wrong with what all trees share. The clock is read last, as it only rises."""
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
        async for faults in inspection.run():
            for fault in self._faults(faults):
                yield fault
            if self._repair is not None:
                await self._repair.repair_turns(faults)
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

    def _faults(self, faults: list[TurnFaults]) -> list[Fault]:
        return [self._shard.fault(word, fault.member) for fault in faults for word in fault.words if word in MEANINGS]

    async def _sums(
        self, inspection: Inspection, since: str, noted: dict[str, int | None], logged: bytes | None
    ) -> AsyncGenerator[Fault]:
        """The wrong sums of a shard that did not change; `logged` has the noted bytes of events, if none were added."""
        children: dict[str, int] = {}
        for member in inspection.suspects():
            counted = await self._children_noted(member)
            children[member] = (-1 if counted is None else counted) - inspection.balance(member)
            yield self._shard.fault("children", member, f"counts {counted}, has {children[member]}")
        jobs = inspection.wrong_jobs()
        for member, number in jobs.items():
            yield self._shard.fault("jobs", member, f"counts {inspection.jobs_noted(member)}, has {number}")
        counters = inspection.wrong_counters(noted)
        for field, number in counters.items():
            yield self._shard.fault("usage", detail=f"{field} is {noted.get(field, 0)}, not {number}")
        events = None
        if logged is not None and logged != b"%d" % inspection.events:
            events = logged.decode("utf-8", "replace"), inspection.events
            yield self._shard.fault("usage", detail=f"logged is {events[0]}, not {events[1]}")
        if self._repair is not None:
            await self._repair.settle(since, children, jobs, counters, events)

    async def _children_noted(self, member: str) -> int | None:
        async with self._shard.server.operation() as operation:
            number = await operation.command("HGET", self._turn(member).key("node"), "children")
        return int(number) if number and number.removeprefix(b"-").isdigit() else None

    async def _children(self, inspection: Inspection, since: str) -> AsyncGenerator[Fault]:
        """Count the children of turns that were suspect in the last inspection, each at one moment."""
        clock = since.partition(" ")[0].partition("~")[0]
        for member, children in inspection.children.items():
            if self._repair is not None or len(children) > MAX_CHILDREN:
                continue
            async with self._shard.server.operation() as operation:
                word, *numbers = await scripts.recount(
                    operation,
                    self._turn(member),
                    children=" ".join(children),
                    since=int(clock) if clock.isdigit() else 0,
                )
            if word == b"wrong":
                counted, there = map(bytes.decode, numbers)
                yield self._shard.fault("children", member, f"counts {counted}, has {there}")

    def _count(self, inspection: Inspection, still: bool) -> None:
        self._tally.turns += inspection.turns
        self._tally.newer += inspection.newer
        self._tally.unknown += inspection.unknown
        self._tally.unneeded += inspection.unneeded
        if not still:
            self._tally.unjudged.append(self._shard.number)

    def _turn(self, member: str) -> TurnKeys:
        tenant, _, digits = member.partition("/")
        return TurnKeys(self._shard.keys, tenant, digits)
