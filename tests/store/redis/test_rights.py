"""A user of its own: the rights that docs/deploy.md names are enough for everything, and no more than that."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from store.errors import StoreUnavailable, StoreUnconfirmed
from store.history.history import ConversationHistoryStore
from store.jobs.log import EventLog
from store.listening import Listening
from store.redis.confirm import Safety
from store.redis.connection import connect
from tests.support import ROOT
from tests.support.store.operations import OPERATIONS
from tests.support.store.sample import TENANT, grow
from tests.support.store.servers import cluster

DOCUMENT = ROOT / "docs" / "deploy.md"
CALL = re.compile(r"""\bcall\('(\w+)'|\b(?:command|scan|_send|row)\(\(?(?:[\w.]+, )?"([A-Z]+)\"""")
PASSWORD = "p/ss@word"


def rights(prefix: str) -> list[str]:
    """What the document gives the user, for keys under another prefix."""
    rule = re.search(r"(?s)```acl\n(.*?)```", DOCUMENT.read_text())[1].split()
    assert rule[:3] == ["ACL", "SETUSER", "harmonium"]
    exact = {">PASSWORD": f">{PASSWORD}", "~harmonium:*": f"~{prefix}:*", "&harmonium:*": f"&{prefix}:*"}
    return [exact.get(each, each) for each in rule[3:]]


@pytest.fixture
async def powerless(redis: Redis, prefix: str, server_url: str) -> AsyncIterator[str]:
    """The way to the server for a user with what the document gives, and no more."""
    await redis.execute_command("ACL", "SETUSER", prefix, *rights(prefix))
    yield f"unix://{prefix}:{quote(PASSWORD, safe='')}@{server_url.removeprefix('unix://')}"
    await redis.acl_deluser(prefix)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_every_operation_works_for_the_documented_user(powerless: str, prefix: str, name: str) -> None:
    store = ConversationHistoryStore(connect(powerless), prefix=prefix, timeout_seconds=15.0)
    (id,) = await grow(store, "one")
    await OPERATIONS[name](store, id)
    await store.close()


async def test_the_documented_user_follows_a_log_and_hears_of_no_others(powerless: str, prefix: str) -> None:
    redis = connect(powerless)
    history, listening = ConversationHistoryStore(redis, prefix=prefix, timeout_seconds=15.0), Listening(redis)
    log, id = EventLog(history), history.new_id()
    assert await log.read(TENANT, id, -1, 1) == []
    assert await log.tail(TENANT, id) is None
    async with listening.channel(log.channel(TENANT, id)) as listener:
        await redis.execute_command("SPUBLISH", log.channel(TENANT, id), b"1 created")
        assert await listener.messages(10.0) == [b"1 created"]
    with pytest.raises(StoreUnavailable, match=r"(?i)no permissions"):
        async with listening.channel("other:channel"):
            pass
    await listening.close()
    await history.close()


@pytest.mark.parametrize(
    "command", [("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("GET", "other:key"), ("SUBSCRIBE", "x")]
)
async def test_the_documented_user_can_do_nothing_else(powerless: str, command: tuple[str, ...]) -> None:
    client = connect(powerless)
    with pytest.raises(NoPermissionError):
        await client.execute_command(*command)
    await client.aclose()


def test_the_documented_user_may_run_what_the_store_does_and_no_more() -> None:
    sources = [path.read_text() for pattern in ("*.py", "*.lua") for path in (ROOT / "store").rglob(pattern)]
    called = {(script or sent).lower() for source in sources for script, sent in CALL.findall(source)}
    granted = {right[1:].partition("|")[0] for right in rights("x") if right[0] == "+"}
    assert granted == called | {"select"}  # for a database other than 0


async def test_it_takes_one_right_more_to_wait_for_replicas(powerless: str, redis: Redis, prefix: str) -> None:
    assert "`HARMONIUM_STORE_REPLICAS` needs `+wait`" in DOCUMENT.read_text()
    store = ConversationHistoryStore(connect(powerless), prefix=prefix, safety=Safety(replicas=1, seconds=0.05))
    with pytest.raises(StoreUnavailable, match="lacks rights"):
        await grow(store, "one")
    await redis.execute_command("ACL", "SETUSER", prefix, "+wait")
    with pytest.raises(StoreUnconfirmed):
        await grow(store, "one")
    await store.close()


async def test_on_a_cluster_it_takes_two_rights_more(tmp_path: Path, prefix: str) -> None:
    more = ["+command", "+cluster|slots"]
    assert " ".join(more) in DOCUMENT.read_text()
    with cluster(tmp_path) as found:
        for node in found.primaries:
            node.ask("ACL", "SETUSER", "harmonium", *rights(prefix), *more)
        url = found.url.replace("://", f"://harmonium:{quote(PASSWORD, safe='')}@")
        store = ConversationHistoryStore(connect(url), prefix=prefix, shards=8, timeout_seconds=15.0)
        for operation in OPERATIONS.values():
            (id,) = await grow(store, "one")
            await operation(store, id)
        await store.close()
