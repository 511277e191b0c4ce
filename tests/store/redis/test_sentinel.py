"""Sentinels: whoever is primary is found, through its death, its demotion and its silence."""

import os
import signal
import time

import pytest

from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.redis.connection import Server, connect
from tests.support.store.operations import OPERATIONS
from tests.support.store.sample import TENANT, grow, said
from tests.support.store.servers import Watched, eventually

LIMIT_SECONDS = 3.0
GRACE_SECONDS = 10.0


async def test_every_operation_works_through_a_sentinel(watched: Watched) -> None:
    store = ConversationHistoryStore(connect(watched.url, timeout_seconds=8.0), timeout_seconds=15.0)
    for operation in OPERATIONS.values():
        (id,) = await grow(store, "one")
        await operation(store, id)
    await store.close()
    assert int(watched.primary.ask("DBSIZE")) > 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
async def test_a_primary_that_is_gone_is_replaced(watched: Watched, end: signal.Signals) -> None:
    store = ConversationHistoryStore(connect(watched.url), timeout_seconds=LIMIT_SECONDS)
    (id,) = await grow(store, "one")
    watched.primary.ask("WAIT", 1, 5000)
    os.kill(watched.primary.process.pid, end)
    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.get(TENANT, id)
    assert time.monotonic() - start < LIMIT_SECONDS + GRACE_SECONDS
    await eventually(lambda: said(store, id), StoreUnavailable)
    (reply,) = await grow(store, "two", parent=id)
    assert await said(store, reply) == ["one", "two"]
    await store.close()


async def test_sentinels_have_users_of_their_own(watched: Watched) -> None:
    watched.sentinel.ask("ACL", "SETUSER", "guard", "on", ">sesame", "+sentinel|masters", "+client|setinfo")
    watched.sentinel.ask("ACL", "SETUSER", "default", "off")
    for options, admitted in (("sentinel_username=guard&sentinel_password=sesame", True), ("", False)):
        server = Server(connect(f"{watched.url}?{options}"), timeout_seconds=5.0, attempts=1)
        if admitted:
            async with server.operation() as operation:
                assert await operation.command("ROLE")
        else:
            with pytest.raises(StoreUnavailable, match="No master found"):
                async with server.operation() as operation:
                    await operation.command("ROLE")
        await server.close()
