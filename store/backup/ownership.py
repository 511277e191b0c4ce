"""The pairing of a store and its archive: the archive has the store's secret, and Redis has the archive's id.

    v1/store/secret    the secret of the store whose turns the archive has
    v1/store/id        hex digits that the archive alone has, made when a store first joins it

Turns that have left Redis are in one archive alone. Another archive, such as an empty folder where a volume was not
mounted, would report all of them as not found. So an archive needs both values to match. A store that knows of no
archive, such as an empty server, takes the one that is there.
"""

import secrets
from typing import NamedTuple

from store.archive.archive import Archive
from store.errors import ArchiveForeign, ArchiveReplaced
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


class Joined(NamedTuple):
    """The values that a store and its archive share."""

    secret: bytes
    id: bytes


async def join(history: ConversationHistoryStore, archive: Archive) -> Joined:
    """Have a store and its archive know each other, if neither has another one. Of two archives that are joined at once
    one is refused.

    Raises ArchiveForeign, ArchiveReplaced, ArchiveUnavailable, StoreUnavailable.
    """
    server, keyspace = history.server, history.keyspace
    known = await _known(server, keyspace)  # asked first: what Redis knows by now, its archive had before
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
        await archive.put(ID_KEY, secrets.token_hex(ID_DIGITS // 2).encode(), only_if=None)
        id = await archive.get(ID_KEY)
    if id is None or len(id.value) != ID_DIGITS:
        raise ArchiveReplaced
    await keep(server, keyspace, id.value)
    return Joined(kept, id.value)


async def keep(server: Server, keyspace: Keyspace, id: bytes) -> None:
    """Have a store know the id of its archive, also where it lost that. Raises ArchiveReplaced where it has another
    archive, StoreUnavailable.
    """
    known = await _known(server, keyspace)
    if known is None:
        async with server.operation() as operation:
            await operation.command("SET", _key(keyspace), id, "NX")
        known = await _known(server, keyspace)
    if known != id:
        raise ArchiveReplaced


async def check(server: Server, keyspace: Keyspace, archive: Archive) -> None:
    """Change nothing, and raise ArchiveForeign or ArchiveReplaced where `join` would; ArchiveUnavailable,
    StoreUnavailable.
    """
    known = await _known(server, keyspace)
    async with server.operation() as operation:
        own = await operation.command("GET", keyspace.all_shards()[0].secret)
    secret, id = await archive.get(SECRET_KEY), await archive.get(ID_KEY)
    if own is not None and secret is not None and secret.value != own:
        raise ArchiveForeign
    if known is not None and (id is None or id.value != known):
        raise ArchiveReplaced


async def leave(server: Server, keyspace: Keyspace) -> bool:
    """A store has no archive any more, and may have another one; whether it had one. Raises StoreUnavailable."""
    if await _known(server, keyspace) is None:
        return False
    async with server.operation() as operation:
        await operation.command("DEL", _key(keyspace))
    return True


async def _known(server: Server, keyspace: Keyspace) -> bytes | None:
    """The id of the archive that a store has."""
    async with server.operation() as operation:
        return await operation.command("GET", _key(keyspace))


def _key(keyspace: Keyspace) -> Key:
    return keyspace.all_shards()[0].archive_id
