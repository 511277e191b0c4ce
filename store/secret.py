"""The secret: random bytes that all processes of a store share, made for the first that asks.

The service seals values that clients keep with it (service/responses/seal.py). It is stored in the first shard, never
changes, and is in every backup of the server. Sealed values can't be opened once it is lost. Never log it.
"""

import secrets
from collections.abc import Callable

from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import SECRET_BYTES
from store.redis import scripts


async def shared_secret(
    store: ConversationHistoryStore, *, entropy: Callable[[int], bytes] = secrets.token_bytes
) -> bytes:
    """The store's secret, SECRET_BYTES long: all that ask at any time get the same one.

    `entropy(n)` returns the n random bytes of a new one. Raises StoreUnavailable, also where the stored value is no
    secret: fsck finds and repairs that.
    """
    async with store.server.operation() as operation:
        first = store.keyspace.all_shards()[0]
        word, found = await scripts.secret(operation, first, made=entropy(SECRET_BYTES))
    if word != b"ok":
        raise StoreUnavailable(f"the secret in the store has {len(found)} bytes and should have {SECRET_BYTES}")
    return found
