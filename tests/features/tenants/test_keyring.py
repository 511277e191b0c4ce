"""The key ring: keys are remembered, given up at once when somebody says so, and by their time when nobody can."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
import pytest

from service.errors import ApiError
from service.features.tenants.audit import Actor
from service.features.tenants.directory import ChangedProject, Directory, Wish
from service.features.tenants.keyring import LOOKED_UP_AT_ONCE, MEMORY_SECONDS, KeyRing
from service.features.tenants.records import new_value
from service.process import Settings
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.listening import Listener, Listening
from store.redis.connection import connect
from store.registry import MOST_A_PAGE, Change, Registry
from tests.support.waiting import until

OPS = Actor("ops")


class CountedRegistry(Registry):
    """A registry that says how often it was read, and may be away."""

    reads = 0
    away = False
    gate: asyncio.Event | None = None
    at_the_end: Callable[[], Awaitable[object]] | None = None
    """What happens once, behind the end of a list."""

    async def read(self, *names: str) -> list[bytes]:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("away")
        found = await super().read(*names)
        if self.gate is not None:
            await self.gate.wait()
        return found

    async def page(
        self, name: str, *, after: str | None = None, limit: int = MOST_A_PAGE, ascending: bool = True
    ) -> list[str] | None:
        found = await super().page(name, after=after, limit=limit, ascending=ascending)
        if not found and self.at_the_end is not None:
            then, self.at_the_end = self.at_the_end, None
            await then()
        return found


class Times:
    """Clocks that stand still."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Room(NamedTuple):
    """A ring over a registry with one project and one key."""

    ring: KeyRing
    registry: CountedRegistry
    directory: Directory
    times: Times
    listening: Listening
    project: str
    account: str
    key: str
    value: bytes


@pytest.fixture
async def room(settings: Settings) -> AsyncIterator[Room]:
    """A project, a service account and a key."""
    client = connect(settings.redis_url)
    history = ConversationHistoryStore(client, prefix=settings.redis_prefix)
    listening, registry, times = Listening(client), CountedRegistry(history), Times()
    directory = Directory(registry, times)
    project = await directory.create_project(OPS, "Chat")
    account, _ = await directory.create_account(OPS, project.id, "web", None)
    made = await directory.create_key(OPS, project.id, account.id, Wish("key"))
    ring = KeyRing(registry, listening, times, times)
    registry.reads = 0
    yield Room(ring, registry, directory, times, listening, project.id, account.id, made.key.id, made.value.encode())
    await listening.close()
    await history.close()


@asynccontextmanager
async def listening(ring: KeyRing) -> AsyncIterator[None]:
    """In the block the ring hears of changes."""
    hearing = asyncio.create_task(ring.run())
    try:
        await until(lambda: ring.listens, 10)
        yield
    finally:
        hearing.cancel()
        await asyncio.wait([hearing])


async def test_a_key_is_looked_up_once_and_what_is_none_opens_nothing(room: Room) -> None:
    for _ in range(5):
        holder = await room.ring.holder(room.value)
        assert holder is not None
        assert (holder.project.id if holder.project else None, holder.key.id) == (room.project, room.key)
    for value in (b"", b"sk-hm-", room.value[:-1], room.value[:-1] + b"!", b"x" * 1000, b"\xff" * 55):
        assert await room.ring.holder(value) is None
    assert room.registry.reads == 2  # the key, and its project
    stranger = new_value().encode()
    assert [await room.ring.holder(stranger) for _ in range(2)] == [None, None]
    assert room.registry.reads == 4, "a stranger's is not remembered"


async def test_without_messages_a_deleted_key_opens_for_as_long_as_it_is_remembered(room: Room) -> None:
    assert await room.ring.holder(room.value)
    await room.directory.delete_key(OPS, room.project, room.key)
    room.times.now += MEMORY_SECONDS - 1
    assert await room.ring.holder(room.value)
    room.times.now += 1
    assert await room.ring.holder(room.value) is None


async def test_while_the_store_is_away_what_is_remembered_holds_and_then_nobody_enters(room: Room) -> None:
    assert await room.ring.holder(room.value)
    room.registry.away = True
    room.times.now += MEMORY_SECONDS - 1
    assert await room.ring.holder(room.value)
    room.times.now += 1
    with pytest.raises(StoreUnavailable):
        await room.ring.holder(room.value)


async def test_who_listens_hears_of_a_deleted_key_and_of_an_archived_project(room: Room) -> None:
    other = await room.directory.create_key(OPS, room.project, room.account, Wish("other"))
    async with listening(room.ring):
        assert await room.ring.holder(room.value)
        await room.directory.delete_key(OPS, room.project, room.key)
        await until(lambda: room.ring.remembered == 0, 10)
        assert await room.ring.holder(room.value) is None
        assert await room.ring.holder(other.value.encode())
        await room.directory.archive_project(OPS, room.project)
        await until(lambda: room.ring.remembered == 0, 10)
        assert await room.ring.holder(other.value.encode()) is None


async def test_who_may_have_missed_something_forgets_all(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    missed = [None]

    async def messages(self: Listener, seconds: float) -> list[bytes] | None:
        await asyncio.sleep(0)
        return missed.pop() if missed and room.ring.remembered else []

    monkeypatch.setattr(Listener, "messages", messages)
    async with listening(room.ring):
        assert await room.ring.holder(room.value)
        await until(lambda: room.ring.remembered == 0, 10)


async def test_what_was_read_before_a_change_is_not_remembered_behind_it(room: Room) -> None:
    room.registry.gate = asyncio.Event()
    looking = asyncio.create_task(room.ring.holder(room.value))
    await until(lambda: room.registry.reads == 1, 10)
    room.ring.forget(room.project)
    room.registry.gate.set()
    assert await looking
    assert room.ring.remembered == 0


async def test_a_key_ends_when_it_was_told_to(room: Room) -> None:
    made = await room.directory.create_key(OPS, room.project, room.account, Wish("short", seconds=10))
    assert await room.ring.holder(made.value.encode())
    room.times.now += 9
    assert await room.ring.holder(made.value.encode())
    room.times.now += 1
    assert await room.ring.holder(made.value.encode()) is None


async def test_of_strangers_only_so_many_are_looked_up_at_once(room: Room) -> None:
    assert await room.ring.holder(room.value)
    room.registry.gate, room.registry.reads = asyncio.Event(), 0
    strangers = [asyncio.create_task(room.ring.holder(new_value().encode())) for _ in range(LOOKED_UP_AT_ONCE)]
    await until(lambda: room.registry.reads == LOOKED_UP_AT_ONCE, 10)
    with pytest.raises(ApiError) as refusal:
        await room.ring.holder(new_value().encode())
    assert refusal.value.status == 503
    assert await room.ring.holder(room.value), "others are not in the way of who is known"
    room.times.now += MEMORY_SECONDS
    known = asyncio.create_task(room.ring.holder(room.value))  # nor where the time to be looked up again has come
    await until(lambda: room.registry.reads == LOOKED_UP_AT_ONCE + 1, 10)
    room.registry.gate.set()
    assert await known
    assert await asyncio.gather(*strangers) == [None] * LOOKED_UP_AT_ONCE


async def test_a_key_whose_account_is_gone_opens_nothing(room: Room) -> None:
    account = await room.directory.account(room.project, room.account)
    await room.registry.change([Change(account.place, msgspec.json.encode(account), b"")])
    assert await room.ring.holder(room.value) is None


async def test_a_record_that_lost_its_project_makes_no_administrator_of_a_key(room: Room) -> None:
    key = await room.directory.key(room.project, room.key)
    lost = msgspec.structs.replace(key, project="", account="")
    await room.registry.change([Change(key.place, msgspec.json.encode(key), msgspec.json.encode(lost))])
    assert await room.ring.holder(room.value) is None


async def test_a_key_that_is_made_while_its_account_is_deleted_is_deleted_too(room: Room) -> None:
    async def make() -> None:
        await room.directory.create_key(OPS, room.project, room.account, Wish("late"))

    room.registry.at_the_end = make
    await room.directory.delete_account(OPS, room.project, room.account)
    assert (await room.directory.keys(room.project, after=None, limit=10)).records == []


async def test_a_weight_that_changes_is_known_though_nobody_presents_a_key(room: Room) -> None:
    async with listening(room.ring):
        await room.ring.holder(room.value)
        for weight in (3.0, 0.5, None):
            await room.directory.update_project(OPS, room.project, ChangedProject(weight=weight))
            await until(lambda: room.ring.weight(room.project), 10, wanted=lambda found, now=weight: found == now)
        room.registry.away = True
        await room.directory.registry.change((), tell=room.project)
        await until(lambda: room.ring.remembered == 0, 10)
        assert room.ring.listens


async def test_a_deleted_key_is_given_up_though_another_project_is_being_looked_up(room: Room) -> None:
    other = await room.directory.create_project(OPS, "Other")
    async with listening(room.ring):
        await room.ring.holder(room.value)
        await room.ring.project(other.id)
        await room.directory.update_project(OPS, other.id, ChangedProject(weight=3.0))
        await until(lambda: room.ring.weight(other.id) == 3.0, 10)
        room.registry.gate, room.registry.reads = asyncio.Event(), 0
        await room.registry.change((), tell=other.id)
        await until(lambda: room.registry.reads == 1, 10)
        await room.registry.change((), tell=room.project)
        await until(lambda: room.ring.remembered == 0, 10)
        room.registry.gate.set()
        await until(lambda: room.registry.reads == 3, 10)  # it is read again, as is the other one
        assert room.ring.weight(other.id) == 3.0


async def test_while_the_store_is_away_a_project_is_what_it_was_and_one_that_nobody_knew_is_refused(room: Room) -> None:
    known = await room.ring.project(room.project)
    room.registry.away = True
    room.times.now += 10 * MEMORY_SECONDS
    assert await room.ring.project(room.project) == known
    with pytest.raises(StoreUnavailable):
        await room.ring.project("nobody")
