"""The way to the server: answers belong to their questions, and no operation outlives its time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from store.embedded import EmbeddedServer
from store.errors import StoreUnavailable
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.keys import ShardKeys
from store.redis.connection import Operation, Server, connect
from store.redis.wire import Argument, Command, Wires
from tests.support.store.audit import dump
from tests.support.store.operations import (
    CONVERSATION_OPERATIONS,
    HISTORY_OPERATIONS,
    JOB_OPERATIONS,
    OPERATIONS,
    check_refused_in_time,
)
from tests.support.store.sample import grow
from tests.support.store.servers import eventually
from tests.support.store.work import submit
from tests.support.waiting import until

LIMIT_SECONDS = 0.5
GRACE_SECONDS = 10.0


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server that a test may treat badly."""
    with EmbeddedServer(tmp_path_factory.mktemp("own")) as server:
        yield server


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_row_that_is_refused_leaves_no_reply_to_the_next_one(server_url: str, prefix: str, ahead: bool) -> None:
    first, second = f"{prefix}:{{00}}:first", f"{prefix}:{{00}}:second"
    narrow = ConversationHistoryStore(connect(server_url, max_connections=1), prefix=prefix)
    async with narrow.server.operation() as operation:
        assert await operation.row(("SET", first, "a"), ("GET", first), at=first, ahead=ahead) == [b"OK", b"a"]
        with pytest.raises(redis_errors.ResponseError, match="not an integer"):
            await operation.row(("SET", first, "b"), ("INCR", first), ("SET", second, "c"), at=first, ahead=ahead)
    async with narrow.server.operation() as operation:
        assert await operation.command("GET", first) == b"b"
        assert await operation.command("GET", second) == (b"c" if ahead else None)
    await narrow.close()


def test_the_operations_that_are_tried_are_all_there_are() -> None:
    pure = {
        "new_id",
        "token",
        "keys_of",
        "note_written",
        "note_removed",
        "add",
        "await_safety",
        "settle",
        "refuse_long",
    }
    parts = {"redact_here", "at_hand"}  # of what the others are made
    assert public(ConversationHistoryStore) == HISTORY_OPERATIONS.keys() | pure | parts | {"close"}
    assert public(Conversations) == CONVERSATION_OPERATIONS.keys() | {"new_id", "new_turn_id", "first_turn_id"}
    assert public(Jobs) == JOB_OPERATIONS.keys() | {"shards", "shard_of", "control"}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


async def test_every_operation_on_a_server_that_hangs_ends_in_time(own_server: EmbeddedServer) -> None:
    async def opened() -> ConversationHistoryStore:
        store = ConversationHistoryStore(connect(own_server.url), timeout_seconds=LIMIT_SECONDS)
        await eventually(store.check, StoreUnavailable)
        return store

    store = await opened()
    (id,) = await until(lambda: grow(store, "one"), passing=StoreUnavailable)
    seconds, words = LIMIT_SECONDS + GRACE_SECONDS, "did not answer within"
    await check_refused_in_time(opened, id, hangs=own_server.pid, seconds=seconds, words=words)
    await eventually(store.check, StoreUnavailable)
    await store.close()


@pytest.mark.parametrize("name", ["pin", "append", "claim", "conversation hold", "keyed take", "limits admit"])
async def test_a_server_that_hears_of_it_too_late_does_nothing(
    store: ConversationHistoryStore, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (id,) = await grow(store, "one")
    await submit(Jobs(store))
    before = await dump(redis, prefix)

    async def long_over(operation: Operation, shard: ShardKeys) -> int:
        return 1

    monkeypatch.setattr(Operation, "not_after", long_over)
    with pytest.raises(StoreUnavailable, match="clock"):
        await OPERATIONS[name](store, id)
    assert await dump(redis, prefix) == before


async def test_every_operation_without_a_server_is_refused(tmp_path: Path) -> None:
    async def opened() -> ConversationHistoryStore:
        return ConversationHistoryStore(connect(f"unix://{tmp_path}/none.sock"), timeout_seconds=LIMIT_SECONDS)

    id, seconds = (await opened()).new_id(), LIMIT_SECONDS + GRACE_SECONDS
    await check_refused_in_time(opened, id, hangs=None, seconds=seconds, words="")


class Flaky(Wires):
    """Wires that lose the first replies."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.sent: list[Sequence[Command]] = []

    async def row(self, commands: Sequence[Command], at: Argument | None = None, *, ahead: bool) -> list[Any]:
        self.sent.append(commands)
        if len(self.sent) <= self.losses:
            raise redis_errors.ConnectionError("lost")
        return ["reply"]


def over(wires: Flaky) -> Operation:
    server = Server(connect("redis://localhost"), timeout_seconds=2.0, attempts=3)
    server.wires = wires
    return server.operation()


async def test_a_lost_reply_is_asked_for_again_within_the_attempts() -> None:
    wires = Flaky(losses=2)
    async with over(wires) as operation:
        assert await operation.command("GET", "x") == "reply"
    assert wires.sent == [(("GET", "x"),)] * 3


async def test_replies_lost_more_often_than_that_are_an_unavailable_server() -> None:
    wires = Flaky(losses=3)
    with pytest.raises(StoreUnavailable, match="lost"):
        async with over(wires) as operation:
            await operation.command("GET", "x")
    assert len(wires.sent) == 3
