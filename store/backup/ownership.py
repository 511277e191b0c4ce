"""The pairing of a store and its archive: the archive has the store's secret, and Redis has the archive's id.

    v1/store/secret    the secret of the store whose turns the archive has
    v1/store/id        hex digits that the archive alone has, made when a store first joins it
    v1/store/format    the format of all of it, written then, too (archive.py)
    v1/00/head         the id of the Redis that uses the archive, among others (heads.py)

Turns that have left Redis are in one archive alone. Another archive, such as an empty folder where a volume was not
mounted, would report all of them as not found. So an archive needs both values to match. A store that knows of no
archive, such as an empty server, takes the one that is there.

Two Redis with one archive would each go on telling what the other one has deleted. So a Redis that finds another one's
id in the archive watches for a while whether that raises the head.
"""

import asyncio
import secrets
from time import monotonic
from typing import NamedTuple

from store.archive.archive import FORMAT, FORMAT_KEY, Archive
from store.backup.heads import Heads, Standing
from store.errors import ArchiveForeign, ArchiveReplaced, ArchiveShared, ArchiveUnnamed, ArchiveWentBack
from store.history.history import ConversationHistoryStore
from store.keys import SECRET_BYTES, Key, Keyspace
from store.layout import shared_secret
from store.redis.connection import Server

SECRET_KEY = "v1/store/secret"
"""Where an archive has the secret of its store."""

ID_KEY = "v1/store/id"
"""Where it has its own id."""

ID_DIGITS = 32
"""How many hex digits an id has: nobody makes the same one twice."""


BEAT_SECONDS = 10.0
"""How often a head is raised at least by a Redis that uses an archive."""

WATCHED_SECONDS = 2.5 * BEAT_SECONDS
"""How long a Redis watches an archive that another one has used and not given back: that may be dead. Where a service
of that one has given it back it watches for half as long, as others of it may go on.
"""

LOOK_SECONDS = 1.0
"""How often it looks meanwhile."""

DOUBTED = "doubted"
"""The field of the first shard's head in Redis by which an archive is an older copy, until somebody accepts it: in
which shard, and of which time. Two processes may name two archives by mistake, a copy and the right one: each that
reads it looks at its own.
"""

LEFT = "left"
"""The field by which a store had an archive and went on without: that hears of no deletion from then on."""


class Joined(NamedTuple):
    """The values that a store and its archive share."""

    secret: bytes
    id: bytes


async def join(history: ConversationHistoryStore, archive: Archive) -> Joined:
    """Have a store and its archive know each other, if neither has another one. Of two archives that are joined at once
    one is refused.

    Raises ArchiveForeign, ArchiveReplaced, ArchiveUnavailable, NewerFormat, StoreUnavailable.
    """
    server, keyspace = history.server, history.keyspace
    known = await _known_id(server, keyspace)  # asked first: what Redis knows by now, its archive had before
    secret, id = await archive.get(SECRET_KEY), await archive.get(ID_KEY)
    if secret is None:
        if known is not None:  # nothing is written to what isn't ours
            raise ArchiveReplaced
        await archive.put(SECRET_KEY, await shared_secret(history), only_if=None)
        secret = await archive.get(SECRET_KEY)
    if secret is None or len(secret.value) != SECRET_BYTES:
        raise ArchiveForeign
    kept = secret.value
    if await shared_secret(history, entropy=lambda size: kept) != kept:
        raise ArchiveForeign
    if id is None and known is None:
        await archive.put(FORMAT_KEY, str(FORMAT).encode(), only_if=None)
        await archive.put(ID_KEY, secrets.token_hex(ID_DIGITS // 2).encode(), only_if=None)
        id = await archive.get(ID_KEY)
    if id is None or len(id.value) != ID_DIGITS:
        raise ArchiveReplaced
    await _keep(server, keyspace, id.value)
    await _come_back(server, keyspace, archive)
    return Joined(kept, id.value)


async def _come_back(server: Server, keyspace: Keyspace, archive: Archive) -> None:
    """Have an archive be an older copy where the store has left it, or one like it: it has to be accepted."""
    if not await _has_left(server, keyspace):
        return
    heads = Heads(server, keyspace, archive)
    for number in range(keyspace.shards):
        await heads.doubt(number)
    await server.command("HDEL", keyspace.all_shards()[0].archive_head, LEFT)


async def _has_left(server: Server, keyspace: Keyspace) -> bool:
    """Whether a store had an archive, and has joined none since."""
    return bool(await server.command("HEXISTS", keyspace.all_shards()[0].archive_head, LEFT))


async def watch(server: Server, keyspace: Keyspace, heads: Heads, seconds: float) -> None:
    """Have the heads know the id of this Redis, and watch for so long whether another one uses the archive, if another
    one did last. Raises ArchiveShared, ArchiveUnavailable, StoreUnavailable.
    """
    await _name(server, keyspace, heads)
    head, began = await heads.read(0), monotonic()
    last = head
    while head.redis not in ("", heads.redis, heads.silent):
        if head != last and not head.released:
            raise ArchiveShared
        if head != last:
            last, began = head, monotonic()
        if monotonic() - began >= (seconds / 2 if head.released else seconds):
            heads.silent = head.redis
        else:
            await asyncio.sleep(min(LOOK_SECONDS, seconds / 2))
            head = await heads.read(0)


async def _name(server: Server, keyspace: Keyspace, heads: Heads) -> None:
    """Have the heads know the id of this Redis: that which it has, or the one that it had before it lost that."""
    key = keyspace.all_shards()[0].archive_user
    async with server.operation() as operation:
        id = await operation.command("GET", key)
        if id is None:
            await operation.command("SET", key, heads.redis or secrets.token_hex(ID_DIGITS // 2), "NX")
            id = await operation.command("GET", key)
    if heads.redis not in ("", id.decode()):  # another process was quicker
        heads.silent = heads.redis
    heads.redis = id.decode()


async def keep(server: Server, keyspace: Keyspace, id: bytes, heads: Heads) -> None:
    """Have a store know the id of its archive, and its own, also where it lost them. Raises ArchiveReplaced where it
    has another archive, ArchiveWentBack where others doubt one and this one is older too, ArchiveUnavailable,
    StoreUnavailable.
    """
    await _keep(server, keyspace, id)
    await _name(server, keyspace, heads)
    doubted = await server.command("HGET", keyspace.all_shards()[0].archive_head, DOUBTED)
    if doubted is None:
        return
    shard = int(doubted.split()[0])
    head = await heads.read(shard)  # who doubts may have a copy of this archive, and be alone with that
    if await heads.standing(shard) is Standing.ARCHIVE_IS_OLDER:
        raise ArchiveWentBack(shard, head.at)


async def doubt(server: Server, keyspace: Keyspace, error: ArchiveWentBack) -> None:
    """Have all processes look whether their archive is older, too, and nothing leave memory because that had it. Raises
    StoreUnavailable.
    """
    first, told = keyspace.all_shards()[0], f"{error.shard} {error.at}"
    if await server.command("HGET", first.archive_head, DOUBTED) == told.encode():
        return
    for shard in keyspace.all_shards():
        await server.command("SET", shard.older, 0)
    await server.command("HSET", first.archive_head, DOUBTED, told)


async def believe(server: Server, keyspace: Keyspace) -> None:
    """End the doubt. Raises StoreUnavailable."""
    await server.command("HDEL", keyspace.all_shards()[0].archive_head, DOUBTED, LEFT)


async def _keep(server: Server, keyspace: Keyspace, id: bytes) -> None:
    known = await _known_id(server, keyspace)
    if known is None:
        await server.command("SET", _key(keyspace), id, "NX")
        known = await _known_id(server, keyspace)
    if known != id:
        raise ArchiveReplaced


async def check(server: Server, keyspace: Keyspace, archive: Archive | None) -> None:
    """Change nothing, and raise ArchiveForeign or ArchiveReplaced where `join` would, ArchiveWentBack where the archive
    is an older copy, ArchiveUnnamed where the store has one and None is given; ArchiveUnavailable, StoreUnavailable.
    """
    if archive is None:
        if await _known_id(server, keyspace) is not None:
            raise ArchiveUnnamed
        return
    for older in await older_shards(server, keyspace, archive):
        raise older


async def older_shards(server: Server, keyspace: Keyspace, archive: Archive) -> list[ArchiveWentBack]:
    """The shards in which the archive is an older copy, each as the error that says so. Raises ArchiveForeign and
    ArchiveReplaced where `join` would, ArchiveUnavailable, StoreUnavailable.
    """
    known = await _known_id(server, keyspace)
    own = await server.command("GET", keyspace.all_shards()[0].secret)
    secret, id = await archive.get(SECRET_KEY), await archive.get(ID_KEY)
    if own is not None and secret is not None and secret.value != own:
        raise ArchiveForeign
    if known is not None and (id is None or id.value != known):
        raise ArchiveReplaced
    heads, left = Heads(server, keyspace, archive), await _has_left(server, keyspace)
    return [
        ArchiveWentBack(number, head.at)
        for number, head in [(number, await heads.read(number)) for number in range(keyspace.shards)]
        if (left and head.number) or await heads.standing(number) is Standing.ARCHIVE_IS_OLDER
    ]


async def accept(server: Server, keyspace: Keyspace, archive: Archive) -> list[ArchiveWentBack]:
    """Take an archive though it is an older copy; what it was in each shard. All that memory has is archived anew.
    Raises as `older_shards`.
    """
    older, heads = await older_shards(server, keyspace, archive), Heads(server, keyspace, archive)
    await _name(server, keyspace, heads)
    for each in older:
        await doubt(server, keyspace, each)
        await heads.accept(each.shard)
    await believe(server, keyspace)
    return older


async def leave(server: Server, keyspace: Keyspace) -> bool:
    """A store has no archive any more, and may have another one; whether it had one. Raises StoreUnavailable."""
    if await _known_id(server, keyspace) is None:
        return False
    await server.command("HSET", keyspace.all_shards()[0].archive_head, LEFT, "")
    await server.command("DEL", _key(keyspace))
    return True


async def _known_id(server: Server, keyspace: Keyspace) -> bytes | None:
    """The id of the archive that a store has."""
    return await server.command("GET", _key(keyspace))


def _key(keyspace: Keyspace) -> Key:
    return keyspace.all_shards()[0].archive_id
