"""The check of one shard: looks at all its turns until the shard stood still during one, and then its sums.

A sum holds if nothing was appended, used or taken away from the beginning of a look to its end. On a shard that never
stands still, the children of a turn can be counted all the same: a tree that was not used since a look began has got no
child since.
"""

from collections.abc import AsyncGenerator

from store.fsck.faults import MEANINGS, Complaint
from store.fsck.look import Fault, Look
from store.fsck.repair import Mender
from store.fsck.scan import KINDS, Shard
from store.keys import SECRET_BYTES, Key
from store.redis import scripts

PASSES = 3
"""How often a shard is looked at, to find that it stood still."""

MAX_CHILDREN = 1_000
"""The most children that are counted by one script call, on a shard that doesn't stand still."""


class Tally:
    """What the checks of several shards have seen, and the shards whose sums they could not judge."""

    def __init__(self) -> None:
        self.turns = self.newer = self.unknown = self.unneeded = 0
        self.unjudged: list[int] = []


class ShardCheck:
    """The check of a shard, of about `total` turns, which `mender` mends as it goes; without one nothing is changed."""

    def __init__(self, shard: Shard, tally: Tally, mender: Mender | None) -> None:
        self._shard = shard
        self._tally = tally
        self._mender = mender
        self.total = 0

    async def run(self) -> AsyncGenerator[Complaint | int]:
        """Complaints as they are found, some more than once, and now and then how many turns were judged."""
        shared = await self._shared()
        for complaint in shared:
            yield complaint
        if any(complaint.what == "shared-type" for complaint in shared):
            self._tally.unjudged.append(self._shard.number)
            if self._mender is not None:
                await self._mender.refit({})
            return  # no other script runs on it, so nobody knows yet what else there is
        if self._mender is not None:
            counters = await self._shard.counters()
            await self._mender.refit({}, [field for field, number in counters.items() if number is None])
        self.total = await self._shard.total()
        look, since, still = Look(self._shard), "", False
        for _ in range(PASSES):
            look = Look(self._shard, None if self._mender else look.suspects())
            process, since = await self._shard.process(), await self._shard.moment()
            events = await self._shard.events_moment()
            async for step in self._look(look):
                yield step
            noted = await self._shard.counters()
            added = events != await self._shard.events_moment()
            still = (process, since) == (await self._shard.process(), await self._shard.moment())
            if still:
                async for complaint in self._sums(look, since, noted, None if added else events[0]):
                    yield complaint
                break
        self._count(look, still)
        if not still:
            async for complaint in self._children(look, since):
                yield complaint

    async def _shared(self) -> list[Complaint]:
        """What is wrong with what all trees share. The clock is read last, as it only rises."""
        wrong: list[Complaint] = []
        for name, kind in KINDS.items():
            found = await self._shard.type_of(name)
            if found not in (kind, "none"):
                wrong.append(self._shard.complaint("shared-type", detail=f"{name} is a {found}"))
        if wrong:
            return wrong
        async with self._shard.server.operation() as operation:
            ranges = [
                await operation.command("ZREVRANGE", key, 0, 0, "WITHSCORES")
                for key in (self._shard.keys.leaves, self._shard.keys.trees)
            ]
            secret = await operation.command("GET", self._shard.keys.secret)
            clock = await operation.command("GET", self._shard.keys.clock) or b"0"
        newest = max((float(found[1]) for found in ranges if found), default=0)
        if not clock.isdigit() or int(clock) < newest:
            wrong.append(self._shard.complaint("clock"))
        if secret is not None and len(secret) != SECRET_BYTES:
            wrong.append(self._shard.complaint("secret", detail=f"it has {len(secret)} bytes"))
        return wrong

    async def _look(self, look: Look) -> AsyncGenerator[Complaint | int]:
        async for faults in look.run():
            for complaint in self._complaints(faults):
                yield complaint
            if self._mender is not None:
                await self._mender.mend(faults)
            yield look.turns
        for place in look.misnamed:
            name = place.removeprefix(self._shard.base)
            yield self._shard.complaint("misnamed", detail="in " + ("the tree of " if "/" in name else "") + name)
        for line in look.mistyped:
            yield self._shard.complaint("shared-type", detail=f"line:{line} is no zset")
        for name in look.endless:
            yield self._shard.complaint("endless-note", detail=name)
        if self._mender is not None:
            await self._mender.mend_trees(look)
            await self._mender.refit(look.misnamed, lines=look.mistyped, notes=look.endless)

    def _complaints(self, faults: list[Fault]) -> list[Complaint]:
        return [
            self._shard.complaint(word, fault.member) for fault in faults for word in fault.words if word in MEANINGS
        ]

    async def _sums(
        self, look: Look, since: str, noted: dict[str, int | None], logged: bytes | None
    ) -> AsyncGenerator[Complaint]:
        """What doesn't add up in a look at a shard that stood still; `logged` are the bytes that are noted of events,
        unless some were added.
        """
        children: dict[str, int] = {}
        for member in look.suspects():
            counted = await self._children_noted(member)
            children[member] = (-1 if counted is None else counted) - look.balance(member)
            yield self._shard.complaint("children", member, f"counts {counted}, has {children[member]}")
        jobs = look.wrong_jobs()
        for member, number in jobs.items():
            yield self._shard.complaint("jobs", member, f"counts {look.jobs_noted(member)}, has {number}")
        counters = look.wrong_counters(noted)
        for field, number in counters.items():
            yield self._shard.complaint("usage", detail=f"{field} is {noted.get(field, 0)}, not {number}")
        events = None
        if logged is not None and logged != b"%d" % look.events:
            events = logged.decode("utf-8", "replace"), look.events
            yield self._shard.complaint("usage", detail=f"logged is {events[0]}, not {events[1]}")
        if self._mender is not None:
            await self._mender.settle(since, children, jobs, counters, events)

    async def _children_noted(self, member: str) -> int | None:
        async with self._shard.server.operation() as operation:
            number = await operation.command("HGET", self._node(member), "children")
        return int(number) if number and number.removeprefix(b"-").isdigit() else None

    async def _children(self, look: Look, since: str) -> AsyncGenerator[Complaint]:
        """Count the children of turns that were suspect in the look before, each at one moment."""
        clock = since.partition(" ")[0].partition("~")[0]
        for member, children in look.children.items():
            if self._mender is not None or len(children) > MAX_CHILDREN:
                continue
            tenant, _, digits = member.partition("/")
            async with self._shard.server.operation() as operation:
                word, *numbers = await scripts.recount(
                    operation,
                    node=Key(self._node(member)),
                    trees=self._shard.keys.trees,
                    turns=self._shard.keys.turns,
                    tenant=tenant,
                    digits=digits,
                    children=" ".join(children),
                    since=int(clock) if clock.isdigit() else 0,
                )
            if word == b"wrong":
                counted, there = map(bytes.decode, numbers)
                yield self._shard.complaint("children", member, f"counts {counted}, has {there}")

    def _count(self, look: Look, still: bool) -> None:
        self._tally.turns += look.turns
        self._tally.newer += look.newer
        self._tally.unknown += look.unknown
        self._tally.unneeded += look.unneeded
        if not still:
            self._tally.unjudged.append(self._shard.number)

    def _node(self, member: str) -> str:
        tenant, _, digits = member.partition("/")
        return f"{self._shard.keys.turns}{tenant}:node:{digits}"
