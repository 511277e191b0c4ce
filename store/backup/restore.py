"""Restore: the conversations of a backup, stored again under the ids that they had.

A file is read twice: first to its end, so that nothing is restored of one that is not whole, or that the store has no
room for; then turn by turn, each after the one that it continues. A turn that is there stays as it is. So an
interrupted restore is run again, and restores the rest. Nothing is evicted, and nothing that is there is replaced.

A conversation's last use decides when it is evicted, and when it expires. Restored conversations have the order that
they had, and none is idle for longer than half of its limit: the ages from an older backup are all scaled down. Else
the first sweep could delete the restored conversations.

An archive may know that turns of a file were deleted since. So the shards fall behind it, and their archiver deletes
those turns again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

import msgspec
from redis.exceptions import OutOfMemoryError

from store import codec
from store.backup.contents import Contents, Entry, Tally, Wanted, all_of_it
from store.backup.deletions import fall_behind
from store.backup.reading import GONE_TOO, patient
from store.backup.records import End, Header, Saved, Tree
from store.errors import DoesNotFit, NewerFormat, NotFound, StoreFull
from store.keys import SECRET_BYTES, Keyspace
from store.layout import Layout, Terms
from store.redis import scripts
from store.redis.connection import Client, Server
from store.turn import CONTINUABLE

TURNS = 64
"""How many turns are stored at a time: those of one conversation one after the other, several conversations at once."""

WAIT_MS = 900_000
"""How long a tombstone waits for the turn that continues it."""

MAX_REPORTED = 1_000
"""How many conflicts are named; all are counted."""


class Bounds(msgspec.Struct, frozen=True):
    """The bounds of a shard, as in store/history/caps.py; 0 is no bound. `idle_us` is how long a tree may be unused."""

    responses: int = 0
    trees: int = 0
    bytes: int = 0
    idle_us: int = 0


class Checked(msgspec.Struct, frozen=True):
    """The part of a file that was asked for; `bytes` is the size of the file."""

    header: Header
    end: End
    trees: int
    turns: int
    deleted: int
    tenants: int
    content: str
    bytes: int


class Done(msgspec.Struct, frozen=True):
    """How far it is: bytes of the file, of how many; `checking` while it is read for the first time."""

    at: int
    of: int
    checking: bool


class Restored(msgspec.Struct, frozen=True):
    """The turns of a restore: `restored`; `kept`, as the store had them; in `conflict` with another turn of the same
    id, or below such a turn; `lost`, as their parent was deleted meanwhile.

    `conflicts` has tenant and id of some in conflict. `secret` is `restored`, `kept` where the store has the same,
    `other` where it has another one, or `none` where the file has none.
    """

    checked: Checked
    restored: int
    kept: int
    conflict: int
    lost: int
    conflicts: list[tuple[str, str]]
    secret: str
    seconds: float

    @property
    def whole(self) -> bool:
        """Whether all that was asked for is in the store now."""
        return not (self.conflict or self.lost)


async def check(file: BinaryIO, wanted: Wanted = all_of_it) -> AsyncGenerator[Done | Checked]:
    """Read a whole file. Yields the progress, and last the result. Raises BadBackup, NewerFormat, OSError."""
    contents = Contents(file, wanted)
    async for step in _read(contents):
        yield step
    yield _checked(contents)


class Restore:
    """Restores into a store."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "harmonium",
        shards: int = 1,
        timeout_seconds: float = 2.0,
        attempts: int = 3,
        bounds: Bounds | None = None,
        turns_per_second: float = 0.0,
        release: str = "unknown",
    ) -> None:
        """A restore by a `release` over `redis`, which it closes, within `bounds`.

        The server has to answer within `timeout_seconds` at first; later it is waited for through a failover.
        `turns_per_second` is its pace; 0 is as fast as the server answers. Raises ValueError for a setting that can't
        work.
        """
        if turns_per_second < 0:
            raise ValueError(f"{turns_per_second=} must be positive, or 0 for no pace")
        self._keyspace = Keyspace(prefix, shards)
        self._server = patient(redis, timeout_seconds)
        first = Server(redis, timeout_seconds=timeout_seconds, attempts=attempts)
        first.wires = self._server.wires
        self._layout = Layout(first, prefix, Terms(shards, release))
        self._bounds = bounds or Bounds()
        self._turns_per_second = turns_per_second
        self._words: Counter[bytes] = Counter()
        self._conflicts: list[tuple[str, str]] = []
        self._refused: dict[str, dict[str, bytes]] = {}
        """Of each conversation under way, the turns that were not restored, with the word for why."""

    async def run(
        self, path: Path, *, tenant: str | None = None, tree: str | None = None
    ) -> AsyncGenerator[Done | Restored]:
        """Restore a file, or its part of a `tenant`, or its conversation with the response `tree`.

        Raises before anything is written BadBackup, NewerFormat, LayoutMismatch, DoesNotFit, NotFound or ValueError
        where the file has nothing of it, OSError; at any time StoreFull and StoreUnavailable, after which it can be run
        again.
        """
        began = monotonic()
        with path.open("rb") as file:
            wanted = _of_tenant(tenant)
            if tree is not None:
                wanted = _only(await _root_of(file, tree, wanted))
            contents = Contents(file, wanted)
            async for step in _read(contents):
                yield step
            checked = _checked(contents)
            if tenant is not None and not checked.trees:
                raise ValueError(f"it has nothing of tenant {tenant!r}")
            await self._layout.check()
            await self._fits(file, contents, wanted)
            await self._layout.agree()
            ages = Ages(contents.tally, await self._now(), self._bounds.idle_us)
            secret = await self._secret(contents.secret)
            again = Contents(file, wanted)
            await fall_behind(self._server, self._keyspace)
            for found in again.blocks():
                await self._store([each for each in found if isinstance(each, Entry)], ages)
                yield Done(again.place.at, again.place.of, False)
            await fall_behind(self._server, self._keyspace)  # it may have caught up, and had more restored since
        yield Restored(
            checked=checked,
            restored=self._words[b"ok"],
            kept=self._words[b"kept"] + self._words[b"deleted"],
            conflict=self._words[b"conflict"],
            lost=self._words[b"missing"],
            conflicts=self._conflicts,
            secret=secret,
            seconds=monotonic() - began,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _fits(self, file: BinaryIO, contents: Contents, wanted: Wanted) -> None:
        """Raises DoesNotFit, NewerFormat."""
        header = contents.header
        if header.messages > codec.MESSAGES_FORMAT:
            raise NewerFormat(header.messages)
        if header.shards > self._keyspace.shards:
            raise DoesNotFit("shards", most=self._keyspace.shards, wanted=header.shards)
        missing = await self._lacks(contents.tally)
        if missing is not None:  # as it would if all were new
            missing = await self._lacks(await self._new(file, wanted))
        if missing is not None:
            raise missing

    async def _lacks(self, tally: Tally) -> DoesNotFit | None:
        """The bound that so much would pass."""
        for shard, keys in enumerate(self._keyspace.all_shards()):
            async with self._server.operation() as operation:
                noted = await operation.command("HMGET", keys.usage, "responses", "trees", "bytes")
            for name, found in zip(("responses", "trees", "bytes"), noted, strict=True):
                most, added = getattr(self._bounds, name), tally.shards[shard, name]
                if added and most and int(found or 0) + added > most:
                    return DoesNotFit(name, most=most, wanted=int(found or 0) + added, shard=shard)
        return None

    async def _new(self, file: BinaryIO, wanted: Wanted) -> Tally:
        """The totals of the turns of a file that the store lacks."""
        tally = Tally()
        for found in Contents(file, wanted).blocks():
            for at in range(0, len(found), TURNS):
                some = [(each, self._member(each)) for each in found[at : at + TURNS]]
                there = await self._there([member for _, member in some])
                for each, member in some:
                    if member not in there:
                        tally.add(each)
        return tally

    async def _there(self, members: Iterable[str]) -> set[str]:
        """The stored ones of some turns, given as TENANT/DIGITS."""
        shards: dict[int, list[str]] = {}
        for member in members:
            shards.setdefault(int(member.partition("/")[2][:2], 16), []).append(member)
        there: set[str] = set()
        for shard, some in shards.items():
            async with self._server.operation() as operation:
                keys = self._keyspace.all_shards()[shard]
                _, *lines = await scripts.describe(operation, keys, members=" ".join(some), above=0, idle_us=GONE_TOO)
            there.update(member for member, line in zip(some, lines, strict=True) if line)
        return there

    async def _store(self, entries: list[Entry], ages: "Ages") -> None:
        """Store some turns in order."""
        for at in range(0, len(entries), TURNS):
            began = monotonic()
            trees: dict[str, list[Entry]] = {}
            for entry in entries[at : at + TURNS]:
                trees.setdefault(self._member(entry.tree), []).append(entry)
            self._refused = {member: self._refused.get(member, {}) for member in trees}
            stored = (self._store_tree(some, self._refused[member], ages) for member, some in trees.items())
            for outcome in await asyncio.gather(*stored, return_exceptions=True):  # none is left behind at work
                if outcome is not None:
                    raise outcome
            if self._turns_per_second:
                await asyncio.sleep(max(0.0, TURNS / self._turns_per_second - (monotonic() - began)))

    async def _store_tree(self, entries: list[Entry], refused: dict[str, bytes], ages: "Ages") -> None:
        for entry in entries:
            turn = entry.turn
            word = refused.get(turn.parent or "")
            if word is None:
                word = await self._store_turn(entry, ages)
            self._words[word] += 1
            if word in (b"conflict", b"missing"):
                refused[turn.id] = word
            if word == b"conflict" and len(self._conflicts) < MAX_REPORTED:
                self._conflicts.append((entry.tree.tenant, turn.id))

    async def _store_turn(self, entry: Entry, ages: "Ages") -> bytes:
        """The word for what became of a turn. Raises StoreFull, StoreUnavailable."""
        tree, turn = entry
        async with self._server.operation() as operation:
            try:
                word, *_ = await scripts.restore(
                    operation,
                    self._keyspace.turn(tree.tenant, turn.id),
                    parent="" if turn.parent is None else self._keyspace.digits(turn.parent),
                    used=ages.of(turn.used),
                    tree_used=ages.of(tree.used),
                    wait_ms=WAIT_MS,
                    max_responses=self._bounds.responses,
                    max_trees=self._bounds.trees,
                    max_bytes=self._bounds.bytes,
                    **arguments_of(turn),
                )
            except OutOfMemoryError as error:
                raise StoreFull("the server has no memory left, or its disk is nearly full") from error
        if word == b"forgotten":
            return b"missing"
        if word == b"full":
            raise StoreFull("others have stored so much meanwhile that it doesn't fit any more")
        return word

    async def _secret(self, saved: bytes | None) -> str:
        """Store the secret where there is none; the word for what became of it."""
        if saved is None or len(saved) != SECRET_BYTES:
            return "none"
        first = self._keyspace.all_shards()[0]
        async with self._server.operation() as operation:
            before = await operation.command("GET", first.secret)
            _, found = await scripts.secret(operation, first, made=saved)
        if found != saved:
            return "other"
        return "restored" if before is None else "kept"

    async def _now(self) -> int:
        """The time of the first shard's server, in µs."""
        async with self._server.operation() as operation:
            seconds, micros = await operation.command("TIME", at=self._keyspace.all_shards()[0].clock)
        return int(seconds) * 1_000_000 + int(micros)

    def _member(self, each: Entry | Tree) -> str:
        """TENANT/DIGITS of a turn, or of a conversation's root."""
        tenant, id = (each.tenant, each.root) if isinstance(each, Tree) else (each.tree.tenant, each.turn.id)
        return f"{tenant}/{self._keyspace.digits(id)}"


class Ages:
    """The last uses as they were; all are moved closer to now where the oldest is older than half of the limit.

    A use from the future, by a clock that was ahead, counts as now.
    """

    def __init__(self, tally: Tally, now: int, idle_us: int) -> None:
        self._now, self._ahead = now, max(0, tally.newest - now)
        oldest = max(1, now + self._ahead - tally.oldest)
        self._part = idle_us // 2 if idle_us else 0
        self._whole = oldest if self._part and oldest > self._part else 0

    def of(self, used: int) -> int:
        """The time that a use gets."""
        age = self._now + self._ahead - used
        return self._now - (age * self._part // self._whole if self._whole else age)


def arguments_of(turn: Saved) -> dict[str, Any]:
    """The script's arguments that come from the turn. A number names the dictionary that compressed its response."""
    response = b""
    if turn.response is not None and turn.items is not None:
        response = codec.encode_response(turn.response, turn.items)
    return {
        "status": turn.status,
        "continuable": "1" if turn.status in CONTINUABLE else "0",
        "digest": turn.digest,
        "added": turn.erased.messages if turn.erased else len(turn.messages),
        "created": turn.created,
        "deleted": "1" if turn.deleted else "",
        "erased": str(turn.erased.bytes) if turn.erased else "",
        "background": turn.background or "",
        "submission": turn.submission or "",
        "held": turn.held,
        "archived": "",
        "fence_ms": 0,
        "messages_blob": codec.encode_messages(turn.messages),
        "response_blob": response,
    }


async def _read(contents: Contents) -> AsyncGenerator[Done]:
    """Read to the end, and let others run in between. Raises BadBackup, OSError."""
    for _ in contents.blocks():
        yield Done(contents.place.at, contents.place.of, True)
        await asyncio.sleep(0)


def _checked(contents: Contents) -> Checked:
    found = contents.tally
    assert contents.end is not None, "blocks() ends with it, or raises"
    return Checked(
        header=contents.header,
        end=contents.end,
        trees=found.trees,
        turns=found.turns,
        deleted=found.deleted,
        tenants=len(found.tenants),
        content=found.content,
        bytes=contents.size,
    )


def _of_tenant(tenant: str | None) -> Wanted:
    return all_of_it if tenant is None else lambda tree: tree.tenant == tenant


def _only(root: Tree) -> Wanted:
    return lambda tree: (tree.tenant, tree.root) == (root.tenant, root.root)


async def _root_of(file: BinaryIO, id: str, wanted: Wanted) -> Tree:
    """The conversation in a file that has a response. Raises NotFound, BadBackup, OSError."""
    root: Tree | None = None
    for found in Contents(file, wanted).blocks():
        root = next((each.tree for each in found if isinstance(each, Entry) and each.turn.id == id), root)
        await asyncio.sleep(0)
    if root is None:
        raise NotFound(id)
    return root
