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
from store.fsck.inspection import KINDS, Inspection, Judged, Moment, Shard, batches, is_number
from store.keys import ARCHIVE, COUNTERS, HEX_DIGITS, SECRET_BYTES, Keyspace, name_of
from store.layout import Layout, Terms
from store.redis import scripts
from store.redis.connection import Client, Server
from store.redis.wire import Argument, Command

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


class _Round:
    """One round over all shards: its counts and faults, and the shards whose sums could not be judged. In one that
    repairs turns may be `archived`, where there is an archive that can be asked.
    """

    def __init__(self, number: int, *, repairs: bool, archived: Archived | None = None) -> None:
        self.number = number
        self.repairs, self.archived = repairs, archived
        self.turns = self.newer = self.unknown = self.unneeded = self.found = 0
        self.unjudged: list[int] = []
        self.faults: set[Fault] = set()
        self.lost: set[tuple[str, str]] = set()

    def note(self, fault: Fault) -> None:
        """Count a fault that is new, and keep it, as far as faults are kept."""
        if fault not in self.faults:
            self.found += 1
            if len(self.faults) < MAX_FAULTS:
                self.faults.add(fault)

    def count(self, inspection: Inspection) -> None:
        """Add the counts of a shard."""
        self.turns += inspection.turns
        self.newer += inspection.newer
        self.unknown += inspection.unknown
        self.unneeded += inspection.unneeded

    def lose(self, members: Iterable[str]) -> None:
        """Note the turns that nobody has any more, as far as they are kept."""
        for member in members:
            if len(self.lost) < MAX_FAULTS:
                tenant, _, digits = member.partition("/")
                self.lost.add((tenant, name_of(digits)))


class ShardRepair:
    """Repairs one shard in a round, which notes the turns that are taken out though no archive has them."""

    def __init__(self, shard: Shard, wanted: _Round) -> None:
        self._shard, self._keys, self._round = shard, shard.keys, wanted
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

    async def remake_shared(self) -> None:
        """Have all keys that all trees of the shard share be such that scripts run on them. One with another type of
        value goes, and is made anew from the turns; the clock is no older than the last use of any turn, where that is
        not yet to come: such a use is repaired with its turn.
        """
        command, keys = self._shard.server.command, self._keys
        for name, kind in KINDS.items():
            if await self._shard.type_of(name) not in (kind, "none"):
                await command("UNLINK", self._shard.base + name)
        for field, number in (await self._shard.counters()).items():
            if number is None and field in COUNTERS:
                await command("HDEL", keys.usage, field)
        for key, is_right in ((keys.logged, is_number), (keys.clock, bytes.isdigit), (keys.secret, _is_secret)):
            value = await command("GET", key)
            if value is not None and not is_right(value):
                await command("UNLINK", key)
        seconds, micros = map(int, await command("TIME", at=keys.clock))
        now = 1_000_000 * seconds + micros
        newest = await command("ZRANGE", keys.trees, now, 0, "BYSCORE", "REV", "LIMIT", 0, 1, "WITHSCORES")
        await self._shard.server.run(scripts.raise_clock, keys, us=int(float(newest[1])) if newest else 0)

    async def remove_nonsense(self, inspection: Inspection) -> None:
        """Remove members that name no turn, tenants' own keys of another type, which are made anew from the turns, and
        notes that would never expire.
        """
        command = self._shard.server.command
        for place, names in inspection.misnamed.items():
            if place.startswith(self._shard.base):
                await command("ZREM", place, *names)
            else:
                await command("SREM", self._shard.key("tree", place), *names)
        for name in inspection.mistyped:
            await command("UNLINK", self._shard.base + name)
        for name in inspection.endless:
            await command("PEXPIRE", self._shard.base + name, 1000, "NX")

    async def repair_trees(self, inspection: Inspection) -> None:
        """Repair the turns below the faulty ones of this inspection, which remembers all children."""
        circles = [member for member in self._lineage if _in_circle(inspection.children, member)]
        for top in set(self._lineage).difference(circles):  # so each names the tree in which it is
            await self._repair(below(inspection.children, top))
        tops = {each.member: _missing(each) for each in self._lacking} | dict.fromkeys(circles, "")
        for top, missing in tops.items():
            await self._take_out(top, missing, list(reversed(below(inspection.children, top))))
        self._lacking, self._lineage = [], []

    async def settle(self, since: str, sums: Iterable[Command], counters: Mapping[str, int], events: str) -> None:
        """Store the real sums, if the moment is still `since`: by the commands of `sums`, and `counters`, of which
        those of the shard come last, as with them the moment is another; `events` is as lua/settle.lua has it.
        """
        usage = self._keys.usage
        own, shared = list(sums), list[Command]()
        for counter, number in counters.items():
            field, _, tenant = counter.partition("/")
            if tenant:
                name = f"{usage}:{field}"
                own.append(("ZADD", name, number, tenant) if number else ("ZREM", name, tenant))
            else:
                shared.append(("HSET", usage, field, number) if number else ("HDEL", usage, field))
        for commands in (*batches(own), shared):
            packed = msgspec.msgpack.encode([[_wire_form(word) for word in command] for command in commands])
            await self._shard.server.run(scripts.settle, self._keys, since=since, commands=packed, events=events)
            events = ""

    async def has_all_archived(self) -> bool:
        """Whether there is an archive that can be asked, and it has all that this shard has."""
        there = await self._shard.server.command("HEXISTS", self._keys.usage, ARCHIVE)
        waits = await self._shard.server.command("EXISTS", *map(self._shard.base.__add__, ("unarchived", "older")))
        return self._round.archived is not None and there == 1 and waits == 0

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
        run, keys, version, circle = self._shard.server.run, self._keys, codec.FORMAT, not missing
        for some in batches(members):
            named = " ".join(some)
            (word,) = await run(
                scripts.discard, keys, top=top, members=named, circle=circle, archive=archive, version=version
            )
            if word == b"alone":
                await self._repair([top], alone=True)
            if word in (b"alone", b"sound"):
                return
            if word == b"ok" and archive != "there":
                self._round.lose(some)

    async def _told_of(self, member: str) -> str:
        """The word of the archive on a turn, as lua/discard.lua has it."""
        tenant, _, digits = member.partition("/")
        try:
            if self._round.archived is not None:
                return "there" if await self._round.archived(tenant, digits) else "lacks"
        except ArchiveUnavailable:
            self._round.archived = None  # it is not waited for again
        except (ArchiveDamaged, NewerFormat):
            pass
        return "unknown"


def _is_secret(value: bytes) -> bool:
    return len(value) == SECRET_BYTES


def _wire_form(word: Argument) -> str | int | msgspec.Raw:
    """A word of a command as the server unpacks it, which knows no bytes but those of texts: here of less than 32."""
    return msgspec.Raw(bytes([0xA0 | len(word)]) + word) if isinstance(word, bytes) else word


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


class _ShardCheck:
    """The check of a shard with about `total` turns, which are repaired in a round that repairs."""

    def __init__(self, shard: Shard, wanted: _Round) -> None:
        self._shard = shard
        self._round = wanted
        self._repair = ShardRepair(shard, wanted) if wanted.repairs else None
        self.total = 0

    async def run(self) -> AsyncGenerator[int]:
        """Note the faults; yields how many turns were judged so far."""
        can_be_judged = await self._check_shared()
        if self._repair is not None:
            await self._repair.remake_shared()
        if not can_be_judged:
            self._round.unjudged.append(self._shard.number)
            return
        inspection = Inspection(self._shard, self._repair is not None)
        for _ in range(PASSES):
            inspection, before = Inspection(self._shard, self._repair is not None), await self._shard.moment()
            self.total = before.turns
            async for turns in self._inspect(inspection):
                yield turns
            noted, after = await self._shard.counters(), await self._shard.moment()
            if (before.process, before.sums) == (after.process, after.sums):
                await self._check_sums(inspection, before, noted, judges_events=before == after)
                break
        else:
            self._round.unjudged.append(self._shard.number)
        self._round.count(inspection)

    def _note(self, what: str, member: str = "", detail: str = "") -> None:
        """Note a fault of the turn TENANT/DIGITS, of a tenant, as TENANT/, or of the shard."""
        tenant, _, digits = member.partition("/")
        id = name_of(digits[:HEX_DIGITS]) if digits else None
        self._round.note(Fault(self._shard.number, what, tenant or None, id, detail))

    async def _check_shared(self) -> bool:
        """Note the faults of the keys that all trees share. False where one has another type of value: no other script
        runs on such a shard, so nothing else can be judged yet. The clock is read last, as it only rises.
        """
        types = {name: await self._shard.type_of(name) for name in KINDS}
        if wrong := {name: found for name, found in types.items() if found not in (KINDS[name], "none")}:
            for name, found in wrong.items():
                self._note("shared-type", detail=f"{name} is a {found}")
            return False
        async with self._shard.server.operation() as operation:
            last = await operation.command("ZREVRANGE", self._shard.keys.trees, 0, 0, "WITHSCORES")
            secret = await operation.command("GET", self._shard.keys.secret)
            clock = await operation.command("GET", self._shard.keys.clock) or b"0"
        if not clock.isdigit() or (last and int(clock) < float(last[1])):
            self._note("clock")
        if secret is not None and not _is_secret(secret):
            self._note("secret", detail=f"it has {len(secret)} bytes")
        return True

    async def _inspect(self, inspection: Inspection) -> AsyncGenerator[int]:
        """Note the faults of turns and of what names them; yields how many turns were judged so far."""
        async for faulty in inspection.run():
            for turn in faulty:
                for word in filter(MEANINGS.__contains__, turn.words):
                    self._note(word, turn.member)
            if self._repair is not None:
                await self._repair.repair_turns(faulty)
            yield inspection.turns
        for place in inspection.misnamed:
            name = place.removeprefix(self._shard.base)
            self._note("misnamed", detail="in " + ("the tree of " if "/" in name else "") + name)
        for name in inspection.mistyped:
            self._note("shared-type", detail=f"{name} is no zset")
        for name in inspection.endless:
            self._note("endless-note", detail=name)
        if self._repair is not None:
            await self._repair.repair_trees(inspection)
            await self._repair.remove_nonsense(inspection)

    async def _check_sums(
        self, inspection: Inspection, moment: Moment, noted: dict[str, int | None], *, judges_events: bool
    ) -> None:
        """Note the wrong sums of a shard that did not change since `moment`."""
        commands: list[Command] = []
        for member, balance in inspection.suspects():
            node = self._shard.key("node", member)
            number = await self._shard.server.command("HGET", node, "children")
            counted = int(number) if number and number.removeprefix(b"-").isdigit() else None
            real = (-1 if counted is None else counted) - balance
            commands.append(("HSET", node, "children", real))
            self._note("children", member, f"counts {counted}, has {real}")
        may_go = self._repair is not None and await self._repair.has_all_archived()
        for word, member, counted, real in inspection.wrong_sums():
            tenant, _, name = member.partition("/")
            place, named = (member, "") if word == "jobs" else (f"{tenant}/", f"{name} ")
            self._note(word, place, f"{named}counts {counted}, has {real}")
            node, picture = self._shard.key("node", member), self._shard.key("picture", member)
            match word:
                case "jobs":
                    commands.append(("HSET", node, "jobs", real) if real else ("HDEL", node, "jobs"))
                case "words":
                    index, field = f"{self._shard.base}said:{tenant}", bytes.fromhex(name)
                    commands.append(("HSET", index, field, f"#{real}") if real else ("HDEL", index, field))
                case _ if member in inspection.empty_pictures or (not real and may_go):
                    commands.append(("UNLINK", picture))
                case _:
                    commands += [("HSET", picture, "turns", real)] if real else []
        counters = inspection.wrong_counters(noted)
        for field, number in counters.items():
            self._note("usage", detail=f"{field} is {noted.get(field, 0)}, not {number}")
        events = ""
        if judges_events and moment.logged != b"%d" % inspection.events:
            logged = moment.logged.decode("utf-8", "replace")
            events = f"{logged}={inspection.events}"
            self._note("usage", detail=f"logged is {logged}, not {inspection.events}")
        if self._repair is not None:
            await self._repair.settle(moment.sums, commands, counters, events)


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
    counts the keys under the prefix that are not the store's. `lost` names the turns, by tenant and id, that a repair
    took out because they can't be read, though no archive has them.
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
    lost: list[tuple[str, str]]
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
        self._server = Server(redis, timeout_seconds=timeout_seconds, attempts=3)
        self._layout = Layout(self._server, keyspace, Terms(shards))
        self._shards = [Shard(self._server, keyspace, number, turns_per_second) for number in range(shards)]

    async def run(self, *, repair: bool = False) -> AsyncGenerator[CheckProgress | CheckReport]:
        """Check, and repair if asked to; in the end the report.

        Raises LayoutMismatch where a release like this one can't judge the store, or not with so few shards, and
        StoreUnavailable.
        """
        began = time.monotonic()
        await self._layout.check()
        first = last = _Round(0, repairs=False)
        lost: set[tuple[str, str]] = set()
        async for step in self._go(first):
            yield step
        for number in range(1, ROUNDS + 1):
            if not repair or last.newer or not (last.found or last.unneeded):
                break
            before, last = last, _Round(number, repairs=False)
            repairing = _Round(number, repairs=True, archived=self._archived)
            for each in (repairing, last):
                async for step in self._go(each):
                    yield step
            lost |= repairing.lost
            if last.faults == before.faults:
                break  # what is left waits for an archive, or for whoever deletes it
        yield self._report(first, last, sorted(lost), time.monotonic() - began)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _go(self, wanted: _Round) -> AsyncGenerator[CheckProgress]:
        for shard in self._shards:
            check = _ShardCheck(shard, wanted)
            async for turns in check.run():
                yield CheckProgress(shard.number, turns, max(turns, check.total), wanted.number)

    def _report(self, first: _Round, last: _Round, lost: list[tuple[str, str]], seconds: float) -> CheckReport:
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
            lost=lost,
            seconds=seconds,
        )


def _in_order(faults: Iterable[Fault]) -> list[Fault]:
    rank = {word: place for place, word in enumerate(MEANINGS)}
    return sorted(faults, key=lambda each: (each.shard, rank[each.what], each.id or "", each.detail))
