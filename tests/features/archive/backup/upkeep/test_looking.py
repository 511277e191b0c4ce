"""An archive's turns as lines, and back in memory."""

import json

from redis.asyncio import Redis

from store.backup.upkeep.exporting import Export, Exported
from store.backup.upkeep.refilling import Refill, Refilled, newest
from store.history.caps import Caps
from store.keys import digits_of
from tests.support.archive.kept import Kept, drop, kept
from tests.support.store.sample import TENANT, grow


async def exported(both: Kept, id: str | None = None, tenant: str = TENANT) -> tuple[list[dict[str, object]], Exported]:
    export = Export(both.archive, tenant)
    lines = [json.loads(line) async for line in export.lines(id and digits_of(id))]
    return lines, export.done


async def refilled(both: Kept, **more: object) -> Refilled:
    trees = await newest(both.archive, **{"tenant": None} | more)  # type: ignore[arg-type]
    return [done async for done in Refill(both.store, both.archive, after_seconds=0).run(trees)][-1]


async def test_an_export_has_a_line_for_each_turn_and_none_for_those_deleted(both: Kept) -> None:
    one, two, three = await grow(both.store, "one", "two", "three")
    (other,) = await grow(both.store, "other tree")
    await grow(both.store, "of another tenant", tenant="acme-2")
    await both.store.forget(TENANT, two)
    await both.archive_all()
    lines, done = await exported(both)
    assert {line["id"] for line in lines} == {one, three, other}
    assert (done.trees, done.turns, done.unreadable) == (2, 3, 0)
    lines, _ = await exported(both, three)
    assert [(line["id"], line["parent"]) for line in lines] == [(one, None), (three, two)]
    (line, _) = lines
    assert line["response"] == {"text": "one"}
    assert line["items"] == ["one"]
    assert line["messages"] == [{"role": "user", "tokens": [0x00656E6F, 0]}]
    assert line["status"] == "completed"
    assert str(line["created"]).startswith("20")


async def test_memory_is_filled_up_to_its_caps_and_nothing_is_evicted(
    both: Kept, server_url: str, prefix: str, redis: Redis
) -> None:
    for number in range(6):
        await grow(both.store, str(number), "again")
    await both.archive_all()
    await drop(redis, prefix)
    async with kept(server_url, prefix, both.archive, Caps(responses=5)) as few:
        (own,) = await grow(few.store, "used now")
        done = await refilled(few)
        assert (done.trees, done.restored, done.no_room) == (2, 4, 4)
        assert await few.store.get(TENANT, own)
