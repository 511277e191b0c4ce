"""Turns to store in tests: small, and told apart by their text."""

from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec import json
from redis.asyncio import Redis

from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.turn import PICTURES, Picture, Status, StoredMessage, Turn

TENANT = "acme"
DAY = 86_400
LONG_AGO = 1.0
"""When something was used last that was used long ago, in µs since 1970."""


def turn(id: str, parent: str | None = None, *, text: str = "hello", status: Status = Status.COMPLETED) -> Turn:
    """A turn with one message, and a response and input items that name its text."""
    message = StoredMessage("user", tokens=text.encode().ljust(8, b"\0"))
    return Turn(id, parent, status, (message,), f'{{"text":"{text}"}}'.encode(), f'["{text}"]'.encode())


def with_words(turn: Turn, said: bytes) -> Turn:
    """The turn, recognised by this digest."""
    return msgspec.structs.replace(turn, said=said)


def with_pictures(turn: Turn, *pictures: bytes) -> Turn:
    """The turn, with pictures of these bytes and a note that names them."""
    if not pictures:
        return turn
    shown = tuple(map(Picture.of, pictures))
    note = StoredMessage(PICTURES, b"", name=json.encode([each.digest.hex() for each in shown]).decode())
    return msgspec.structs.replace(turn, pictures=shown, messages=(*turn.messages, note))


async def grow(
    store: ConversationHistoryStore, *names: str, parent: str | None = None, tenant: str = TENANT
) -> list[str]:
    """Append turns with these texts, each the child of the one before; their ids."""
    ids: list[str] = []
    for name in names:
        id = store.new_id(parent)
        await store.append(tenant, turn(id, parent, text=name))
        ids.append(id)
        parent = id
    return ids


async def said(store: ConversationHistoryStore, tip: str, tenant: str = TENANT) -> list[str]:
    """The texts of the chain that `tip` ends, oldest first."""
    chain = await store.chain(tenant, tip)
    return [message.tokens.rstrip(b"\0").decode() for message in chain.messages()]


async def alive(store: ConversationHistoryStore, ids: Iterable[str], tenant: str = TENANT) -> list[str]:
    """Those of `ids` that are known; nothing is touched."""
    found: list[str] = []
    for id in ids:
        with suppress(NotFound):
            await store.lineage(tenant, id)
            found.append(id)
    return found


async def set_use(redis: Redis, prefix: str, score: float, *roots: str, tenant: str = TENANT) -> None:
    """Move the last use of trees in the only shard, behind the store's back."""
    for digits in (root.rpartition("_")[2] for root in roots):
        await redis.zadd(f"{prefix}:{{00}}:trees", {f"{tenant}/{digits}": score})
        await redis.zadd(f"{prefix}:{{00}}:trees:{tenant}", {digits: score})


async def leave_unused(redis: Redis, prefix: str, days: float) -> None:
    """All trees were used last so many days earlier than they are said to be."""
    for member, score in await redis.zrange(f"{prefix}:{{00}}:trees", 0, -1, withscores=True):
        tenant, _, digits = member.decode().partition("/")
        await set_use(redis, prefix, int(score) - round(days * DAY * 1_000_000), digits, tenant=tenant)
