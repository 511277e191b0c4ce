"""Pictures go with their turns to archives, into backups and exports, and come back with them."""

import json
from base64 import b64decode

import msgspec
import pytest
from redis.asyncio import Redis

from store.backup.archiving.parts import Part, decode, encode, key_of
from store.backup.records import Saved
from store.backup.upkeep.exporting import Export
from store.errors import ArchiveDamaged
from store.history.elsewhere import NO_ARCHIVE
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.turn import Picture, digest_of
from tests.support.archive.kept import Kept, lose
from tests.support.store.backups import Moves, contents_of
from tests.support.store.sample import TENANT, grow, turn, with_pictures

CAT, DOG = b"cat" * 1_000, b"dog" * 300_000
WANTED = {digest_of(CAT): CAT, digest_of(DOG): DOG}


async def show(store: ConversationHistoryStore, *pictures: bytes, parent: str | None = None) -> str:
    id = store.new_id(parent)
    await store.append(TENANT, with_pictures(turn(id, parent), *pictures))
    return id


async def test_a_turn_that_comes_back_from_the_archive_has_its_pictures(
    archived: Kept, redis: Redis, prefix: str
) -> None:
    store = archived.store
    root = await show(store, CAT, DOG)
    tip = await show(store, DOG, parent=root)
    await archived.archive_all()
    await lose(redis, prefix)
    store.elsewhere = archived.turns
    assert await store.pictures(TENANT, root, WANTED) == WANTED  # as it is listed, where it is away
    assert await store.pictures(TENANT, tip, WANTED) == {digest_of(DOG): DOG}
    assert await store.pictures("globex", root, WANTED) == {}
    await store.chain(TENANT, tip)
    store.elsewhere = NO_ARCHIVE
    assert await store.pictures(TENANT, tip, WANTED) == WANTED


async def test_of_a_way_in_portions_an_erased_turn_stays_erased(
    archived: Kept, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived.store
    root = await show(store, CAT)
    middle = await show(store, DOG, parent=root)
    tip = await show(store, CAT, parent=middle)
    await archived.archive_all()
    await lose(redis, prefix)
    store.elsewhere = archived.turns
    await store.forget(TENANT, middle, erase=True)
    monkeypatch.setattr("store.backup.archiving.archived_turns.WITH_RESPONSES", 0)
    assert (await store.chain(TENANT, tip)).ids == (root, middle, tip)
    store.elsewhere = NO_ARCHIVE
    assert await store.pictures(TENANT, tip, WANTED) == {digest_of(CAT): CAT}


async def test_what_was_erased_or_redacted_is_archived_without_its_pictures(
    archived: Kept, redis: Redis, prefix: str
) -> None:
    store = archived.store
    root = await show(store, CAT)
    tip = await show(store, CAT, DOG, parent=root)
    await archived.archive_all()
    await store.forget(TENANT, root, erase=True)
    left = with_pictures(turn(tip), DOG).messages
    await store.redact(TENANT, tip, lambda messages, response, items: (left, response, items))
    await archived.archive_all()
    way = await archived.turns.way(TENANT, digits_of(tip))
    assert way is not None
    assert [[each.data for each in saved.pictures] for saved in way.turns] == [[], [DOG]]


async def test_a_backup_has_the_pictures_of_its_turns(
    store: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    root = await show(store, CAT, DOG)
    tip = await show(store, DOG, parent=root)
    (end,) = await grow(store, "end", parent=tip)
    await store.forget(TENANT, tip)
    saved = await moves.save()
    assert (await moves.restore()).restored == 3
    assert await second.pictures(TENANT, end, WANTED) == WANTED
    assert (await moves.save_second()).content == saved.content
    assert (await contents_of(moves.file)).turns == 3


async def test_an_export_has_the_bytes_of_pictures(archived: Kept) -> None:
    id = await show(archived.store, CAT)
    await archived.archive_all()
    (line,) = [json.loads(line) async for line in Export(archived.archive, TENANT).lines(digits_of(id))]
    assert {name: b64decode(data) for name, data in line["pictures"].items()} == {digest_of(CAT).hex(): CAT}


@pytest.mark.parametrize(
    "pictures",
    [
        (Picture(digest_of(CAT), DOG),),
        (Picture.of(CAT),) * 101,
    ],
    ids=["another one's digest", "too many"],
)
async def test_forged_pictures_in_an_archive_are_damage(archived: Kept, pictures: tuple[Picture, ...]) -> None:
    id = await show(archived.store, CAT)
    await archived.archive_all()
    stored = await archived.value(key_of(TENANT, digits_of(id)))
    (saved,) = decode(stored.value).turns
    with pytest.raises(ArchiveDamaged):
        decode(encode(Part((msgspec.structs.replace(saved, pictures=pictures),))))
    assert isinstance(saved, Saved)
