"""Whatever kind of key a server loses, whole or in part: after a repair all is as before, but for what nobody has.

A derived key is derived anew. A part that a turn lacks comes from the archive; without one, the turns that lost
nothing are as they were. No repair is a deletion.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import DecodeError, json
from redis.asyncio import Redis

from store.archive.opening import open_archive
from store.errors import StoreError
from store.fsck.check import CheckReport
from store.fsck.faults import LACKING
from store.history.conversations import Conversations, by_hand
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.keys import ARCHIVE, digits_of, is_conversation
from store.turn import PICTURES, digest_of
from tests.support.archive.kept import Kept, kept
from tests.support.store.audit import complaints, replies
from tests.support.store.breaks import CAT, DOG, WORDS
from tests.support.store.sample import TENANT, grow, said, turn, with_pictures, with_words
from tests.support.store.verdict import checked
from tests.support.store.work import do_all, submit

OF_TURNS = ("node", "messages", "response", "picture")
"""Keys that hold what nothing else in Redis has."""

FIELDS = (
    *("digest", "created", "deleted", "pictures"),
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in (
            *("parent", "root", "depth", "children", "status", "continuable", "touched", "held", "messages_bytes"),
            *("response_bytes", "chain_messages", "chain_bytes", "log_bytes"),
        )
    ),
)
"""Of a node, but for `said`: who loses that is not recognised until it comes back from the archive."""

DERIVED = (
    *("clock", "usage", "leaves", "tombstones", "trees", "conversations", "said", "tree", "logs", "logged"),
    *("unarchived", "log", "changes"),
)
"""Keys whose loss changes nothing that anybody can read."""

OF_NOBODY = LACKING | {"picture"}
"""The faults that are left where nobody has what was lost."""

WHOLE_OR_HALF = pytest.mark.parametrize("part", [False, pytest.param(True, marks=pytest.mark.full)])


class Stored(NamedTuple):
    """A store and its archive, if it has one; the ids of turns that are archived, and of `late` ones that are not."""

    store: ConversationHistoryStore
    both: Kept | None
    old: list[str]
    late: list[str]

    async def archive_all(self) -> None:
        if self.both is not None:
            await self.both.archive_all()


@pytest.fixture(params=["with an archive", "without"])
async def stored(request: pytest.FixtureRequest, server_url: str, prefix: str, tmp_path: Path) -> AsyncIterator[Stored]:
    archive = open_archive("sqlite", tmp_path)
    async with kept(server_url, prefix, archive) as both:
        if request.param == "without":
            await both.store.server.command("HDEL", both.store.keyspace.all_shards()[0].usage, ARCHIVE)
            yield await _filled(both.store, None)
        else:
            both.store.elsewhere = both.turns
            yield await _filled(both.store, both)
    await archive.close()


async def _filled(store: ConversationHistoryStore, both: Kept | None) -> Stored:
    """A tree with a fork, pictures and a deleted turn; one with words; a turn that was deleted while a run held it; a
    conversation; a background response with its events; and turns below the first tree, and a tree, that the archive
    doesn't have yet.
    """
    root, gone, leaf = await grow(store, "root", "gone", "leaf")
    shown, words = store.new_id(root), store.new_id(together="here")
    await store.append(TENANT, with_pictures(turn(shown, root, text="shown"), CAT, DOG))
    await store.append(TENANT, with_words(with_pictures(turn(words, text="words"), CAT), WORDS))
    await store.forget(TENANT, gone)
    (held,) = await grow(store, "held")
    await store.chain(TENANT, held, pin=store.token())
    await store.forget(TENANT, held)
    conversations, jobs = Conversations(store), Jobs(store)
    talk = conversations.new_id()
    first = by_hand(conversations.new_turn_id(talk), None, turn(root).messages)
    await conversations.create(TENANT, talk, first, b"{}")
    background = await submit(jobs)
    await do_all(jobs)
    made = Stored(store, both, [root, leaf, shown, words, first.id, talk, background], [])
    await made.archive_all()
    made.late.extend(await grow(store, "below", "late", parent=leaf))
    made.late.extend(await grow(store, "new"))
    return made


async def told(stored: Stored) -> dict[str, Any]:
    """All that anybody can read of each turn, by its id, and whose the words are."""
    store, found = stored.store, dict[str, Any]()
    for id in stored.old + stored.late:
        name, questions = digits_of(id), _questions(store, id)
        found[name] = [await _answer(ask) for ask in questions]
    found["words"] = await _answer(lambda: store.recognise(TENANT, "here", [WORDS], forks=True))
    return found


def _questions(store: ConversationHistoryStore, id: str) -> list[Callable[[], Awaitable[Any]]]:
    if is_conversation(id):
        conversations = Conversations(store)
        return [lambda: conversations.get(TENANT, id), lambda: conversations.lineage(TENANT, id)]
    return [
        lambda: store.get(TENANT, id),
        lambda: store.items(TENANT, [id]),
        lambda: store.messages(TENANT, id),
        lambda: store.lineage(TENANT, id),
        lambda: _pictures(store, id),
        lambda: said(store, id),
    ]


async def _pictures(store: ConversationHistoryStore, id: str) -> dict[bytes, bytes]:
    """The pictures that a turn's messages name."""
    named = [json.decode(each.name) for each in await store.messages(TENANT, id) if each.role == PICTURES and each.name]
    return await store.pictures(TENANT, id, [bytes.fromhex(digest) for some in named for digest in some])


async def _answer(ask: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await ask()
    except (StoreError, DecodeError) as error:  # a value that was cut, of which nobody has a copy
        return type(error).__name__


async def keys_of(redis: Redis, prefix: str, kind: str) -> list[str]:
    """The keys of a kind: of turns by their family, of a shard by the first word of their name."""
    names = [key.decode() async for key in redis.scan_iter(f"{prefix}:*", count=1000)]
    shared = f"{prefix}:{{00}}:"
    return sorted(
        name for name in names if f":t:{TENANT}:{kind}:" in name or name.removeprefix(shared).partition(":")[0] == kind
    )


async def half_of(redis: Redis, key: str) -> tuple[Any, ...]:
    """The command by which a key loses a half of what it has."""
    match await redis.type(key):
        case b"hash":
            names = sorted(await redis.hkeys(key))
            return ("HDEL", key, *names[: -(-len(names) // 2)])
        case b"zset":
            return ("ZREMRANGEBYRANK", key, 0, (await redis.zcard(key) - 1) // 2)
        case b"set":
            return ("SPOP", key, -(-await redis.scard(key) // 2))
        case b"stream":
            return ("XTRIM", key, "MAXLEN", await redis.xlen(key) // 2)
        case _:
            return ("SET", key, (await redis.get(key))[: await redis.strlen(key) // 2])


async def repaired(stored: Stored, url: str, prefix: str) -> CheckReport:
    """The report once a repair was asked for, the archive has what waits, and a repair was asked for again."""
    archived = stored.both.has if stored.both else None
    for _ in range(2):
        report = await checked(url, prefix, repair=True, archived=archived)
        await stored.archive_all()
    return report


async def deletions(redis: Redis, prefix: str) -> set[bytes]:
    """The members of `changes` by which the archive is to delete something."""
    keys = await keys_of(redis, prefix, "changes")
    return {member for key in keys for member in await redis.zrange(key, 0, -1) if member[:1] != b"+"}


async def harmed(
    stored: Stored, redis: Redis, url: str, prefix: str, commands: list[tuple[Any, ...]], *, adds_up: bool = True
) -> set[str]:
    """The names of those of whom something else can be read after some harm and a repair than before. Then all keys
    add up, unless values were cut of which nobody has a copy.
    """
    before, noted = await told(stored), await deletions(redis, prefix)
    assert commands
    await replies(redis, commands)
    report = await repaired(stored, url, prefix)
    left = {fault.what for fault, done in report.faults.items() if not done}
    assert not left - OF_NOBODY, report
    assert report.left == 0 or stored.both is None, report
    assert await deletions(redis, prefix) <= noted
    assert left or not adds_up or await complaints(redis, prefix) == []
    after = await told(stored)
    return {name for name in before if before[name] != after[name]}


@WHOLE_OR_HALF
@pytest.mark.parametrize("kind", DERIVED)
async def test_a_loss_of_what_is_derived_changes_nothing_that_can_be_read(
    stored: Stored, redis: Redis, server_url: str, prefix: str, kind: str, part: bool
) -> None:
    keys = await keys_of(redis, prefix, kind)
    if not keys:
        assert stored.both is None
        return
    commands = [await half_of(redis, key) if part else ("DEL", key) for key in keys]
    assert await harmed(stored, redis, server_url, prefix, commands) == set()


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("kind", OF_TURNS)
async def test_what_a_turn_lost_of_itself_comes_back_from_the_archive(
    stored: Stored, redis: Redis, server_url: str, prefix: str, kind: str, part: bool
) -> None:
    keys = await keys_of(redis, prefix, kind)
    late = {digits_of(id) for id in stored.late}
    commands = [
        await half_of(redis, key) if part else ("DEL", key) for key in keys if key.rpartition(":")[2] not in late
    ]
    has_copies = stored.both is not None
    changed = await harmed(stored, redis, server_url, prefix, commands, adds_up=has_copies or not part)
    assert not has_copies or changed == set()


@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_that_all_nodes_lost_comes_back(
    stored: Stored, redis: Redis, server_url: str, prefix: str, field: str
) -> None:
    late = {digits_of(id) for id in stored.late}
    keys = [key for key in await keys_of(redis, prefix, "node") if key.rpartition(":")[2] not in late]
    changed = await harmed(stored, redis, server_url, prefix, [("HDEL", key, field) for key in keys])
    assert stored.both is None or changed == set()


@pytest.mark.parametrize("kind", OF_TURNS)
async def test_without_an_archive_a_repair_takes_nothing_of_those_that_lost_nothing(
    stored: Stored, redis: Redis, server_url: str, prefix: str, kind: str
) -> None:
    words = stored.old[3]
    key = f"{prefix}:{{00}}:t:{TENANT}:{kind}:{digest_of(DOG).hex() if kind == 'picture' else digits_of(words)}"
    changed = await harmed(stored, redis, server_url, prefix, [("DEL", key)])
    shown, own = digits_of(stored.old[2]), {digits_of(words), "words"}
    assert changed <= (set() if stored.both else {shown} if kind == "picture" else own)
