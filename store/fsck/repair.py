"""Repairing the faults that the check has found in a shard: each call finds the fault again before it changes anything.

Readable turns stay as they are. A turn that can't be read any more is removed with all that continue it: no history is
better than one with a hole. Never repair a shard in which a later release has written.
"""

from collections.abc import Iterable, Mapping

from store import codec
from store.fsck.faults import UNREADABLE
from store.fsck.inspection import KINDS, Inspection, Judged, Shard, batches
from store.keys import COUNTERS
from store.redis import scripts

PRUNED = 100
"""The most turns that go with one tombstone in a call, and the most leaves by which a tree's last use is found."""


class Repair:
    """Repairs one shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._keys = shard.keys
        self._unreadable: list[str] = []
        self._lineage: list[str] = []

    async def repair_turns(self, faults: Iterable[Judged]) -> None:
        """Repair the faults of single turns, and remember those that concern the turns below them too.

        A deleted turn that nothing needs is removed, as the next sweep would.
        """
        members: list[str] = []
        for fault in faults:
            if UNREADABLE.intersection(fault.words):
                self._unreadable.append(fault.member)
            elif "lineage" in fault.words:
                self._lineage.append(fault.member)
            else:
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
        kinds = KINDS | dict.fromkeys(mistyped, "zset")
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
        for top in (*self._unreadable, *circles):
            await self._discard(top, list(reversed(below(inspection.children, top))))
        for top in set(self._lineage).difference(circles):
            await self._repair(below(inspection.children, top))
        self._unreadable, self._lineage = [], []

    async def settle(
        self,
        since: str,
        children: Mapping[str, int],
        jobs: Mapping[str, int],
        counters: Mapping[str, int],
        events: tuple[str, int] | None,
    ) -> None:
        """Store the real sums, if the moment is still `since`; `events` has the noted bytes and the real ones."""
        last = {field: number for field, number in counters.items() if field in COUNTERS}
        tenants = (f"{field}={number}" for field, number in counters.items() if field not in last)
        counted = (("children", children), ("jobs", jobs))
        nodes = (f"{member}/{field}={number}" for field, numbers in counted for member, number in numbers.items())
        for some in batches(nodes):
            await self._settle(since, nodes=" ".join(some))
        if events is not None:
            await self._settle(since, events=f"{events[0]}={events[1]}")
        for some in batches(tenants):
            await self._settle(since, counters=" ".join(some))
        if last:
            await self._settle(since, counters=" ".join(f"{field}={number}" for field, number in last.items()))

    async def _repair(self, members: Iterable[str]) -> None:
        for some in batches(members):
            await self._shard.server.run(
                scripts.repair, self._keys, members=" ".join(some), version=codec.FORMAT, budget=PRUNED
            )

    async def _discard(self, top: str, members: list[str]) -> None:
        for some in batches(members):
            (word,) = await self._shard.server.run(
                scripts.discard, self._keys, top=top, members=" ".join(some), version=codec.FORMAT
            )
            if word == b"sound":
                return

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


def _in_circle(children: Mapping[str, list[str]], member: str) -> bool:
    """Whether a turn is below itself."""
    digits = member.partition("/")[2]
    return any(digits in children.get(each, ()) for each in below(children, member))
