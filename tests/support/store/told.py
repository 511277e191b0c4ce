"""An event log as the scripts of jobs write it: each entry is added, and told to the log's channel, at one moment."""

from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from tests.support.store.sample import TENANT


def names(store: ConversationHistoryStore, id: str) -> tuple[str, str]:
    """The key and the channel of a response's log."""
    keys = store.keyspace.turn(TENANT, id)
    return keys.key("log"), keys.key("events")


async def write(redis: Redis, store: ConversationHistoryStore, id: str, last: int, blob: bytes) -> None:
    """Add an entry whose last event has the number `last`."""
    key, channel = names(store, id)
    async with redis.pipeline(transaction=True) as both:
        both.execute_command("XADD", key, f"{last + 1}-0", "b", blob)
        both.execute_command("SPUBLISH", channel, b"%d %b" % (last + 1, blob))
        await both.execute()
