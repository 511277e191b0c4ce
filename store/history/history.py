"""ConversationHistoryStore: conversations as trees of immutable turns in Redis.

A turn is written once, under its own id, with a link to its parent. A chain is the path from a turn to its root, so two
runs that continue the same turn share nothing that either could damage. Each atomic change is one Lua script; payloads
are read by plain MGET, as bytes through Lua cost ten times as much.

Never change or delete a key outside a script, and never answer for a turn of another tenant: it is not found.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from redis.exceptions import RedisError

from store import codec
from store.errors import (
    ArchiveForeign,
    ArchiveUnavailable,
    ArchiveUnfit,
    ChainTooLong,
    DiskFull,
    NotFound,
    NotTerminal,
    ParentNotFound,
    StoreUnarchived,
    StoreUnavailable,
)
from store.history.append import Addition, refuse_continuation, refuse_joining, spending, with_room
from store.history.caps import EVICT_BATCH, ROOM_BYTES, Caps
from store.history.delete import Doubt, forget, forget_tree, in_pieces, release
from store.history.elsewhere import NO_ARCHIVE, NOT_ARCHIVED, Archived, ArchivedTurn, ArchiveReader
from store.history.omissions import may_omit, without_omitted
from store.history.read import TurnCache, Uses, first_within, mget
from store.ids import Ids
from store.keys import (
    BY_HAND_MARK,
    CONVERSATION_MARK,
    HEX_DIGITS,
    Keyspace,
    ShardKeys,
    TurnKeys,
    checked_tenant,
    conversation_id,
    id_of,
    ids_of,
    mark_of,
    shard_of,
    split_path,
)
from store.listening import Listening
from store.redis import scripts
from store.redis.conditions import refuses_writes
from store.redis.confirm import ENDED, TRIES, Confirmer, Safety
from store.redis.connection import Client, Operation, Server
from store.turn import LISTED_PICTURES, PICTURES, SAID_BYTES, TERMINAL, Chain, Found, Messages, Status, Turn
from store.watcher import UNWATCHED, Watcher

MAX_DEPTH = 10_000
"""The most turns of a chain; reading so many takes tens of milliseconds, and no context has room for them."""

MAX_CHAIN_BYTES = 32 << 20
"""The most bytes of messages in a chain that may still be continued: a read of some 20 ms."""

TOKEN_BYTES = 12

MOST_DIGESTS = 64
"""The most digests of one question for what was said: a page of the index, and a node for each that it has."""

REDACTIONS_AT_ONCE = 8
"""How often a turn is read again that others redact meanwhile; a holder of its conversation has no such rival."""

MOST_SHOWN = 1_000
SHOWN_AT_ONCE = 16
"""The most pictures that are asked for, and how many are read by one row of commands."""

FOUND_AT_ONCE = 4

RETURNS_AT_ONCE = 3
"""How often a turn is brought back that is evicted again before anybody could continue it."""

UNSAFE = Safety()
"""Waits for neither replicas nor the disk."""

NO_EVICTION = b"noeviction"
"""The only policy for lack of memory by which a server deletes nothing itself."""

POLICY_SECONDS = 1.0
"""For how long that is remembered: anybody may ask a probe, as often as they like."""

T = TypeVar("T")

Edit = Callable[[Messages, bytes, bytes], tuple[Messages, bytes, bytes]]
"""Returns the remaining messages, response and items of a turn, given all of them."""

NOTHING_LISTED = (b"", b"")
"""The value that `items` returns for a deleted turn: neither a response nor input items."""


class ConversationHistoryStore:
    """Append turns, read the chain that a turn ends, read a response, forget one."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "harmonium",
        shards: int = 1,
        timeout_seconds: float = 2.0,
        attempts: int = 3,
        pin_seconds: float = 900.0,
        max_depth: int = MAX_DEPTH,
        max_chain_bytes: int = MAX_CHAIN_BYTES,
        caps: Caps | None = None,
        cache_bytes: int = 0,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
        clock: Callable[[], float] = time.time,
        safety: Safety = UNSAFE,
        watcher: Watcher = UNWATCHED,
    ) -> None:
        """A store over `redis` (see connection.connect), which it closes.

        Every operation ends within `timeout_seconds`, sending a command up to `attempts` times. A pin counts for
        `pin_seconds`, which must exceed the longest run. `caps` bound each shard. `entropy(n)` returns n random
        bytes for ids and tokens, `clock()` the seconds since 1970. `safety` is how
        safe a turn has to be before it counts as stored. Raises ValueError for a setting that can't work.
        """
        if pin_seconds <= 0 or max_depth < 1 or max_chain_bytes < 1:
            raise ValueError(f"{pin_seconds=}, {max_depth=} and {max_chain_bytes=} must be positive")
        self.caps = self._all_caps = caps or Caps()
        if 0 < self.caps.idle_seconds <= pin_seconds:
            raise ValueError(
                f"idle_seconds={self.caps.idle_seconds} must exceed {pin_seconds=}: a run could lose its history"
            )
        self.keyspace = Keyspace(prefix, shards)
        self.ids = Ids(self.keyspace, entropy)
        self.server = Server(redis, timeout_seconds=timeout_seconds, attempts=attempts, watcher=watcher)
        self.confirmer = Confirmer(self.server, safety)
        self.listening = Listening(redis, timeout_seconds=timeout_seconds)
        self.pin_ms = max(1, round(pin_seconds * 1000))
        self.max_depth = min(max_depth, self.caps.responses or max_depth)
        self.max_chain_bytes = max_chain_bytes
        self._cache = TurnCache(cache_bytes)
        self._uses = Uses(self.caps.noted_seconds)
        self._policy, self._policy_until = "", 0.0
        self._entropy, self.clock = entropy, clock
        self.elsewhere: ArchiveReader = NO_ARCHIVE
        """The archive that is asked for turns that left the store."""
        self.full = False
        """Whether the last turn was refused because the server's disk is nearly full: the next may be, too."""

    def new_id(self, parent: str | None = None, *, together: str = "", seed: bytes = b"") -> str:
        """A new id, in the parent's tree or any shard; in one for all that are `together`. The same `seed` makes the
        same id. Raises ParentNotFound.
        """
        shard = self.keyspace.place_of(together) if together else None
        beside = "" if parent is None else self._parent_digits(parent)
        return id_of(self.ids.new(beside, shard=shard, seed=seed))

    async def recognise(
        self, tenant: str, together: str, digests: Sequence[bytes], *, forks: bool
    ) -> tuple[int, str] | None:
        """The first of these digests that is what one turn alone has `said`, by its place, and the id of the turn; None
        where none is. Turns are looked for in the shard of ids that are `together`, and those that can't be continued
        are passed over; without `forks`, those that something continues, too. It doesn't count as use, and `chain`
        still decides.

        Raises ValueError for more than MOST_DIGESTS or one of another length, StoreUnavailable.
        """
        if len(digests) > MOST_DIGESTS or any(len(digest) != SAID_BYTES for digest in digests):
            raise ValueError(f"{len(digests)} digests must be {MOST_DIGESTS} or fewer, each of {SAID_BYTES} bytes")
        if not digests:
            return None
        word, *detail = await self.server.run(
            scripts.recognise,
            self.keyspace.all_shards()[self.keyspace.place_of(together)],
            tenant=checked_tenant(tenant),
            digests=b"".join(digests),
            forks=forks,
            idle_us=self.caps.idle_us,
        )
        return (int(detail[0]), id_of(detail[1].decode())) if word == b"ok" else None

    async def chain(
        self, tenant: str, tip: str, *, pin: str | None = None, keys: TurnKeys | None = None, above: bool = False
    ) -> Chain:
        """The chain that `tip` ends, to continue it; notes its use.

        The token `pin` lets its owner continue the tip even if it is deleted meanwhile, for `pin_seconds` at most; pass
        it to `append` or `unpin`. Deleted ancestors are part of the chain. With the `keys` of a conversation it is the
        chain of the turn at which that stands, which may be deleted. With `above` it is what an unfinished response
        continues, for its worker, even if its parent was deleted meanwhile. Raises ParentNotFound, also for a turn that
        is no response, NotContinuable, StoreUnavailable, and with `pin` ChainTooLong.
        """
        found = keys or self._parent(tenant, tip)
        if mark_of(found.digits) == BY_HAND_MARK:
            raise ParentNotFound(tip)
        return await self.at_hand(found, lambda: self._chain(found, tip, pin, above))

    async def at_hand(self, keys: TurnKeys, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt()`, which needs the turn with these keys in the store. Where it finds nothing, an
        archived turn is brought back, and `attempt` is called again.

        Raises the errors of `attempt`, and those of bringing the turn back.
        """
        for _ in range(RETURNS_AT_ONCE):
            try:
                return await attempt()
            except NotFound:
                if not await self.elsewhere.bring_back(keys.tenant, keys.digits):
                    raise
        raise StoreUnavailable(f"a turn was brought back {RETURNS_AT_ONCE} times, and evicted at once")

    async def _chain(self, keys: TurnKeys, id: str, pin: str | None, above: bool) -> Chain:
        async with self.server.operation() as operation:
            path, has_erased = await self._walk(operation, keys, id, pin, above=above)
            if above or mark_of(keys.digits) == CONVERSATION_MARK:
                path = path[HEX_DIGITS:]
            erased = has_erased == b"1"
            known = await self._cache.chain(operation, keys.family("messages"), path, erased=erased)
        if known is None:  # deleted between the script and MGET
            raise ParentNotFound(id)
        omits = may_omit(path)
        turns = without_omitted(split_path(path), known.turns) if omits else known.turns
        return Chain(ids=known.ids, turns=turns, pin=pin, cut=omits or erased)

    async def _walk(
        self, operation: Operation, keys: TurnKeys, id: str, pin: str | None, *, above: bool = False
    ) -> list[bytes]:
        """The digits of a chain's turns, newest first in one string, and b"1" if messages of its tree were erased."""
        word, *detail = await scripts.chain(
            operation,
            keys,
            pin=pin or "",
            pin_ms=self.pin_ms,
            max_depth=self.max_depth,
            max_messages=self.caps.chain_messages,
            max_bytes=self.max_chain_bytes,
            max_held=max(0, self.caps.bytes - ROOM_BYTES),
            under_way=above,
            idle_us=self.caps.idle_us,
        )
        refuse_continuation(word, detail, id)
        return detail

    async def pin(self, tenant: str, tip: str, pin: str) -> bool:
        """Pin a chain that the caller has in memory, as `chain` does; True if messages of its tree were erased.

        Raises ParentNotFound, NotContinuable, ChainTooLong, StoreUnavailable.
        """
        keys = self._parent(tenant, tip)
        detail = await self.at_hand(keys, lambda: self.server.run(self._walk, keys, tip, pin))
        return detail[1] == b"1"

    def refuse_long(self, chain: Chain) -> None:
        """Raise ChainTooLong for a chain in memory that could not be continued if it were stored."""
        messages = chain.messages()
        most = self.caps.chain_messages
        size = sum(message.size for turn in chain.turns for message in turn)
        if len(chain.ids) >= self.max_depth or 0 < most <= len(messages) or size >= self.max_chain_bytes:
            raise ChainTooLong(str(chain.tip))

    async def append(
        self, tenant: str, turn: Turn, *, pin: str | None = None, conversation: str = "", shown: bytes = b""
    ) -> None:
        """Store a turn and release its run's `pin` on the parent; storing the same turn again changes nothing. The
        conversation with the digits `conversation` then stands at it, as conversations.py says.

        But a retry stores a turn again that was deleted meanwhile, and the store retries a call without a reply: so a
        turn that is deleted during its own append, for `timeout_seconds` at most, may come back. After StoreUnavailable
        the turn may be stored already, and never is later. Raises Conflict when another turn has the id, ParentNotFound
        when the parent is gone and not kept by `pin`, NotContinuable when its status or depth forbids a child
        (ChainTooLong), StoreFull when no turn may be evicted, TurnTooLarge, StoreUnavailable.
        """
        if turn.status not in TERMINAL:
            raise ValueError(f"{turn.id} is {turn.status}: only what has ended can be appended")
        addition = Addition(*self.keys_of(tenant, turn), turn, await codec.pack(turn), pin or "", shown)
        await self.add(
            addition,
            scripts.append,
            lambda reply: refuse_joining(reply[0], conversation_id(conversation)),
            conversation=conversation,
            conversation_blob=shown,
            no_messages=codec.NO_MESSAGES,
            spent=spending(turn.expense, self.caps),
        )
        self.note_written(tenant, turn)

    def add(
        self,
        addition: Addition,
        script: scripts.Script[TurnKeys, ...],
        refuse: Callable[[scripts.Reply], None],
        **own: object,
    ) -> Coroutine[Any, Any, scripts.Reply]:
        """The reply of a `script` that adds a turn, with its `own` arguments, as `await_safety` returns it."""
        shared = addition.arguments(self.caps, self.max_depth)
        values = partial(script, **{name: shared[name] for name in script.arguments if name in shared}, **own)
        return self.await_safety(
            lambda operation: with_room(operation, addition, self.caps, values, self.note_removed),
            addition.keys,
            addition.packed.digest,
            refuse,
        )

    async def await_safety(
        self,
        store: Callable[[Operation], Awaitable[scripts.Reply]],
        turn: TurnKeys,
        digest: str,
        refuse: Callable[[scripts.Reply], None] = lambda reply: None,
    ) -> scripts.Reply:
        """The reply of `store`, once the turn that it stores is as safe as the settings ask; with '' for its digest
        nothing is waited for.

        Where a failover loses it before that, it is stored again. Where the archive has to have something first, that
        is asked to, and `store` is called again; no further time after `timeout_seconds`. Raises the errors of `store`
        and of `refuse`, which gets the reply, StoreUnarchived, StoreUnconfirmed and StoreUnavailable.
        """
        until, losses = time.monotonic() + self.server.timeout_seconds, 0
        while losses < TRIES:
            try:
                async with self.server.operation() as operation:
                    reply = await store(operation)
            except StoreUnarchived:
                try:
                    if time.monotonic() > until or not await self.elsewhere.make_room(turn.shard):
                        raise
                except (ArchiveUnavailable, ArchiveForeign, ArchiveUnfit) as away:
                    raise StoreUnarchived(away) from away
                continue
            except DiskFull:
                self.full = True
                raise
            self.full = False
            refuse(reply)
            if not digest or await self.confirmer.confirm(turn, digest):
                return reply
            losses += 1
        raise StoreUnavailable(f"what was stored was gone again {TRIES} times: the servers fail over again and again")

    def note_removed(self, turns: Mapping[str, int]) -> None:
        for reason, count in turns.items():
            if count:
                self.server.watcher.removed(reason, count)

    def note_written(self, tenant: str, turn: Turn) -> None:
        self._cache.put(self.keyspace.turn(tenant, turn.id).key("messages"), turn.messages)

    async def settle(self, tenant: str, id: str) -> None:
        """Return once the end of a background response is as safe as the settings ask.

        Raises StoreUnconfirmed, and StoreUnavailable, also where a failover has lost it: it will end again.
        """
        if not await self.confirmer.confirm(self.keyspace.turn(tenant, id), ENDED):
            raise StoreUnavailable("a failover has lost the end of a response, which will end again")

    async def unpin(self, tenant: str, tip: str, pin: str) -> None:
        """Release a pin whose run ended without a turn; it may be gone already. Raises StoreUnavailable."""
        await self.server.run(release, self._parent(tenant, tip), pin)

    async def find(self, tenant: str, id: str, *, keys: TurnKeys | None = None, touches: bool = True) -> Found:
        """A response and its status, or a conversation with these `keys`; notes its use, where the server takes writes,
        unless the service itself reads it (`touches`), or this process noted it in the last `touch_seconds`.

        Raises NotFound, StoreUnavailable.
        """
        keys = keys or self.keyspace.response(tenant, id)
        turn = f"{keys.tenant}/{keys.digits}"
        async with self.server.operation() as operation:
            if touches and (root := self._uses.root_of(turn)) is not None:
                found, blob = await self._glance(operation, keys, root)
            else:
                (_, *found), blob = await self._look(operation, keys, touches=touches)
                if touches and found:
                    self._uses.note(turn, found.pop().decode())
        if not found or blob is None:
            kept = await self._archived_turn(keys, id)
            return Found(kept.status, kept.response, kept.background, under_way=False, logged=False)
        status, background, under_way, logged, *_ = cast(tuple[bytes, bytes, int, int], found)
        return Found(
            status=Status(status.decode()),
            response=(await codec.unpack_response(blob))[0],
            background=background.decode() or None,
            under_way=bool(under_way),
            logged=bool(logged),
        )

    async def _archived_turn(self, keys: TurnKeys, id: str) -> ArchivedTurn:
        kept = await self.elsewhere.find(keys.tenant, keys.digits)
        if kept is None:
            raise NotFound(id)
        return kept

    async def _look(self, operation: Operation, keys: TurnKeys, *, touches: bool) -> list[Any]:
        """The state of a turn, and its response blob: both in one round trip, as most turns are there."""
        script = scripts.touch if touches else scripts.look
        get, idle_us = ("GET", keys.key("response")), self.caps.idle_us
        try:
            return await script.in_a_row(operation, keys, [get], ahead=True, touches=touches, idle_us=idle_us)
        except RedisError as refusal:
            if not touches or not refuses_writes(refusal):
                raise
        return await self._look(operation, keys, touches=False)

    async def _glance(self, operation: Operation, keys: TurnKeys, root: str) -> tuple[Sequence[Any], Any]:
        """The same of a turn in a tree that was used a moment ago, by commands that write nothing; the state is empty
        where the turn is missing. A tree that was forgotten since then has the score 0 (lua/idle.lua).
        """
        (deleted, status, background, log_bytes), used, under_way, blob = await operation.row(
            ("HMGET", keys.key("node"), "deleted", "status", "background", "log_bytes"),
            ("ZSCORE", keys.key("trees"), f"{keys.tenant}/{root}"),
            ("EXISTS", keys.key("job")),
            ("GET", keys.key("response")),
            ahead=True,
        )
        if deleted or not status or not used or used == b"0":
            return (), blob
        under_way = under_way and background
        return (status, background or b"", under_way, under_way or log_bytes), blob

    async def get(self, tenant: str, id: str) -> bytes:
        """The response JSON as served; notes its use. Raises NotFound, StoreUnavailable."""
        return (await self.find(tenant, id)).response

    async def items(
        self, tenant: str, ids: Sequence[str], *, remains: bool = False, most_bytes: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """(response JSON, input items JSON) of several turns of one chain, in the order of `ids`.

        With `most_bytes` only the first ones that come to no more, and one at least.

        A turn that is deleted or missing is NOTHING_LISTED; with `remains` a deleted one has the response that was
        kept for the lists of conversations. Raises NotFound for an id that can't exist, ValueError for
        turns of several shards, StoreUnavailable.
        """
        path = list(map(self.keyspace.digits, ids))
        if not path:
            return []
        if len({shard_of(digits) for digits in path}) > 1:
            raise ValueError("the turns of one chain are in one shard, these are not")
        keys = self.keyspace.keys(tenant, path[0])
        async with self.server.operation() as operation:
            blobs = await mget(operation, [keys.family("response") + digits for digits in path])
            deleted = [at for at, blob in enumerate(blobs) if blob is None] if remains else []
            kept = await mget(operation, [keys.family("remains") + path[at] for at in deleted])
        for at, blob in zip(deleted, kept, strict=True):
            blobs[at] = blob
        if most_bytes is not None:
            blobs = first_within(most_bytes, FOUND_AT_ONCE, blobs)
            path = path[: len(blobs)]
        told = [NOTHING_LISTED if blob is None else await codec.unpack_response(blob) for blob in blobs]
        left = await self._places_left(keys, path, blobs)
        for start in range(0, len(left), FOUND_AT_ONCE):
            some = left[start : start + FOUND_AT_ONCE]
            found = await asyncio.gather(*(self.elsewhere.find(tenant, path[at]) for at in some))
            for at, gone in zip(some, found, strict=True):
                told[at] = NOTHING_LISTED if gone is None else (gone.response, gone.items)
        return told

    async def _places_left(self, keys: TurnKeys, path: Sequence[str], blobs: Sequence[bytes | None]) -> list[int]:
        """The places in `path` of turns without a blob that left the store, though some may have come back since: the
        others were deleted, and are needed.
        """
        lacking = [] if self.elsewhere is NO_ARCHIVE else [at for at, blob in enumerate(blobs) if blob is None]
        if not lacking:
            return []
        deleted = await self.server.row(
            *(("HEXISTS", keys.family("node") + path[at], "deleted") for at in lacking), at=keys.shard.clock
        )
        return [at for at, is_deleted in zip(lacking, deleted, strict=True) if not is_deleted]

    async def messages(self, tenant: str, id: str) -> Messages:
        """The messages that one turn added. Raises NotFound, StoreUnavailable."""
        keys = self.keyspace.turn(tenant, id)
        blob = await self.server.command("GET", keys.key("messages"))
        return (await self._archived_turn(keys, id)).messages if blob is None else codec.decode_messages(blob)

    async def pictures(self, tenant: str, id: str, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """The bytes of pictures by their digests: those that turns of the shard show in which `id` is, or that turn
        itself in the archive. One that nothing shows is left out.

        Raises NotFound for an id that can't exist, ValueError for more than MOST_SHOWN, StoreUnavailable.
        """
        if len(digests) > MOST_SHOWN:
            raise ValueError(f"{len(digests)} pictures must be {MOST_SHOWN} or fewer")
        keys = self.keyspace.turn(tenant, id)
        wanted = list(dict.fromkeys(digests))
        found: dict[bytes, bytes] = {}
        for start in range(0, len(wanted), SHOWN_AT_ONCE):
            some = wanted[start : start + SHOWN_AT_ONCE]
            reads = [("HGET", keys.family("picture") + digest.hex(), "bytes") for digest in some]
            read = await self.server.row(*reads, at=keys.shard.clock, ahead=True)
            found |= {digest: data for digest, data in zip(some, read, strict=True) if data is not None}
        if len(found) < len(wanted):
            gone = await self.elsewhere.find(keys.tenant, keys.digits)
            found |= {each.digest: each.data for each in (gone.pictures if gone else ()) if each.digest in wanted}
        return found

    async def lineage(self, tenant: str, id: str, *, keys: TurnKeys | None = None) -> tuple[str, ...]:
        """The ids from the root to `id` or the conversation of `keys`. Raises NotFound, StoreUnavailable."""
        keys = keys or self.keyspace.response(tenant, id)
        word, *detail = await self.server.run(scripts.lineage, keys, idle_us=self.caps.idle_us)
        if word != b"missing":
            return ids_of(split_path(detail[0]))
        gone = await self.elsewhere.lineage(keys.tenant, keys.digits)
        if gone is None:
            raise NotFound(id)
        return tuple(gone)

    async def forget(self, tenant: str, id: str, *, erase: bool = False, keys: TurnKeys | None = None) -> None:
        """Delete a turn, or a conversation with these `keys`: its id is unknown and its response gone from now on. Its
        descendants keep their history, with `erase` without this turn's messages.

        Removes the turns that no descendant and no run needs, also those that an earlier call left which was cut short
        or didn't erase. A run that has read the chain keeps its copy. Raises NotFound, StoreUnavailable.
        """
        found, token, idle_us = keys or self.keyspace.response(tenant, id), self.token(), self.caps.idle_us

        async def delete(archived: Archived) -> None:
            await self.server.run(forget, found, token=token, idle_us=idle_us, erase=erase, archived=archived)

        await self._delete(found, delete, remains=erase)

    async def _delete(
        self, keys: TurnKeys, delete: Callable[[Archived], Awaitable[None]], *, remains: bool = False
    ) -> None:
        """Delete what is here, or note that it is deleted where the archive alone has it: that needs no room."""
        try:
            await delete(NOT_ARCHIVED)
        except NotFound:
            if not await self.elsewhere.delete(keys.tenant, keys.digits, delete, remains=remains):
                raise

    async def redact(self, tenant: str, id: str, edit: Edit) -> None:
        """Take something out of a turn for good, for all who continue it: `edit` returns the messages, the response and
        the items that remain. Removed parts are as gone as after `forget` with `erase`.

        Raises the errors of `edit`, NotFound, NotTerminal, StoreUnavailable.
        """
        keys = self.keyspace.turn(tenant, id)
        await self.at_hand(keys, lambda: self.redact_here(keys, id, edit))

    async def redact_here(self, keys: TurnKeys, id: str, edit: Edit) -> None:
        """Redact a turn that is in the store, as `redact` does."""
        for _ in range(REDACTIONS_AT_ONCE):
            async with self.server.operation() as operation:
                redactions = await operation.command("HGET", keys.key("node"), "redactions")
                blobs = await mget(operation, [keys.key(name) for name in ("messages", "response", "remains")])
            said, shown = blobs[0], blobs[1] or blobs[2]
            if said is None or shown is None:
                raise NotFound(id)
            before = codec.decode_messages(said), *await codec.unpack_response(shown)
            if sum(map(len, before[1:])) > codec.THREAD_FROM_BYTES:
                messages, response, items = await asyncio.to_thread(edit, *before)
            else:
                messages, response, items = edit(*before)
            (word,) = await self.server.run(
                scripts.redact,
                keys,
                redactions=(redactions or b"").decode(),
                idle_us=self.caps.idle_us,
                messages_blob=codec.encode_messages(messages),
                response_blob=codec.encode_response(response, items),
                notes=" ".join(each.name or "" for each in messages if each.role in (PICTURES, LISTED_PICTURES)),
            )
            if word == b"ok":
                return
            if word == b"missing":
                raise NotFound(id)
            if word == b"running":
                raise NotTerminal(id)
        raise StoreUnavailable(f"{id} was changed {REDACTIONS_AT_ONCE} times while an item of it was to be erased")

    async def forget_tree(self, tenant: str, id: str) -> None:
        """Delete the tree of a turn, which may be no response: the conversation, and all its forks.

        All its ids are unknown at once, and no run can add to it. Its keys are removed before this returns; the rest of
        a very large tree goes with the next sweep. Raises NotFound, NotTerminal where a run in it hasn't ended,
        StoreUnavailable.
        """
        keys, token = self.keyspace.turn(tenant, id), self.token()

        async def delete(archived: Archived) -> None:
            await self.server.run(forget_tree, keys, token=token, caps=self.caps, archived=archived)

        await self._delete(keys, delete)

    async def sweep(self) -> Doubt | None:
        """Remove all trees that are deleted, or unused for longer than the caps allow, with the grace that they have.

        Where the time is in doubt it removes no unused tree, and returns the doubt with the number of these trees in
        all shards. From then on unused trees are known again, to this process, until a sweep has no doubt: the first
        sweep has to come before the first request. Raises StoreUnavailable if it failed in a shard; the next sweep
        removes the rest there.
        """
        doubts: dict[ShardKeys, Doubt] = {}

        async def remove(operation: Operation, shard: ShardKeys) -> bool:
            caps = self._all_caps
            word, why, trees, expired = await scripts.sweep(
                operation,
                shard,
                only="",
                idle_us=caps.idle_us,
                named_us=caps.named_us,
                grace_us=caps.idle_grace_us,
                clock_us=round(self.clock() * 1_000_000),
                budget=EVICT_BATCH,
            )
            self.note_removed({"idle": int(expired)})
            if why:
                doubts[shard] = Doubt(why.decode(), int(trees))
            return word == b"again"

        await in_pieces(self.server, self.keyspace, remove)
        self.caps = replace(self._all_caps, idle_seconds=0, named_idle_seconds=0) if doubts else self._all_caps
        if not doubts:
            return None
        return Doubt(min(each.why for each in doubts.values()), sum(each.trees for each in doubts.values()))

    async def check(self) -> None:
        """Return if every shard can be read and written, and writes are safe in time, where the settings ask for that.
        Raises StoreUnavailable: StoreReadOnly if it can only be read, StoreUnconfirmed if writes are not safe.
        """
        shards = self.keyspace.all_shards()
        async with self.server.operation() as operation:
            for shard in shards:
                await scripts.prove(operation, shard, takes_turns=False)
        await self.confirmer.prove(*(shards if self.server.several else shards[:1]))

    async def evicts(self) -> str:
        """The policy by which a server that is full deletes keys, and so parts of conversations; "" where none does. It
        is asked for once in POLICY_SECONDS. Raises StoreUnavailable.
        """
        if (now := time.monotonic()) >= self._policy_until:
            self._policy_until = now + POLICY_SECONDS  # who comes meanwhile gets what was known before
            try:
                self._policy = await self._read_policy()
            except BaseException:
                self._policy_until = 0.0
                raise
        return self._policy

    async def _read_policy(self) -> str:
        shards = self.keyspace.all_shards()
        async with self.server.operation() as operation:
            for shard in shards if self.server.several else shards[:1]:
                memory = await operation.command("INFO", "memory", at=shard.clock)
                policy = re.search(rb"maxmemory_policy:(\S+)", memory)
                if policy is not None and policy[1] != NO_EVICTION:
                    return policy[1].decode()
        return ""

    async def prove(self, id: str) -> None:
        """Return if this turn could be written now, and safe in time. Raises StoreUnavailable, and DiskFull."""
        shard = self.keyspace.shard(self.keyspace.digits(id))
        (word,) = await self.server.run(scripts.prove, shard, takes_turns=True)
        if word == b"closed":
            raise DiskFull
        await self.confirmer.prove(shard)

    async def now(self) -> float:
        """The seconds since 1970 by the servers: the latest that any shard's server shows, or has given to a use. What
        a time decides is decided by this one, not by that of a process. Raises StoreUnavailable.
        """
        latest = 0
        async with self.server.operation() as operation:
            for shard in self.keyspace.all_shards():
                used = await operation.command("GET", shard.clock)
                latest = max(latest, await operation.now_us(shard.clock), int(used or 0))
        return latest / 1_000_000

    async def cut_time(self, least: int = 0) -> int:
        """A time in µs since 1970, of `least` or more, that is no earlier than all that was stored, and earlier than
        all that will be, though a clock was ahead, or servers disagree. Raises StoreUnavailable.
        """
        latest = max(least, round(await self.now() * 1e6))
        for shard in self.keyspace.all_shards():
            await self.server.run(scripts.raise_clock, shard, us=latest)
        return latest

    async def close(self) -> None:
        await self.listening.close()
        await self.confirmer.close()
        await self.server.close()

    def token(self) -> str:
        """A new name for a pin, a lease, or a call and its retries."""
        return self._entropy(TOKEN_BYTES).hex()

    def keys_of(self, tenant: str, turn: Turn) -> tuple[TurnKeys, str]:
        """The keys of a turn, and the digits of its parent, '' for a root. Raises NotFound, ParentNotFound."""
        keys = self.keyspace.turn(tenant, turn.id)
        parent = "" if turn.parent is None else self._parent_digits(turn.parent)
        if parent and shard_of(parent) != shard_of(keys.digits):
            raise ValueError(f"{turn.id} must be in the shard of its parent {turn.parent}: make it by new_id(parent)")
        return keys, parent

    def _parent(self, tenant: str, id: str) -> TurnKeys:
        return self.keyspace.keys(tenant, self._parent_digits(id))

    def _parent_digits(self, id: str) -> str:
        try:
            digits = self.keyspace.digits(id)
        except NotFound as error:
            raise ParentNotFound(id) from error
        if mark_of(digits) == CONVERSATION_MARK:
            raise ParentNotFound(id)
        return digits
