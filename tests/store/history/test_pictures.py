"""Pictures are stored once for a tenant, with the first turn that shows them, and go with the last one."""

import msgspec
import pytest

from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.turn import MOST_PICTURES, Picture, Status, Turn, digest_of
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, turn, with_pictures

CAT, DOG = b"cat" * 1_000, b"dog" * 2_000


async def show(
    store: ConversationHistoryStore, *pictures: bytes, parent: str | None = None, tenant: str = TENANT
) -> str:
    id = store.new_id(parent)
    await store.append(tenant, with_pictures(turn(id, parent), *pictures))
    return id


async def seen(store: ConversationHistoryStore, id: str, tenant: str = TENANT) -> set[bytes]:
    wanted = [digest_of(CAT), digest_of(DOG)]
    found = await store.pictures(tenant, id, wanted)
    assert all(digest_of(data) == digest for digest, data in found.items())
    return set(found.values())


async def test_a_picture_is_no_other_tenants(store: ConversationHistoryStore) -> None:
    id = await show(store, CAT)
    assert await seen(store, id, "other") == set()


async def test_a_redaction_takes_the_pictures_that_no_note_names_any_more(store: ConversationHistoryStore) -> None:
    id = await show(store, CAT, DOG)
    left = with_pictures(turn(id), DOG).messages
    await store.redact(TENANT, id, lambda messages, response, items: (left, response, items))
    assert await seen(store, id) == {DOG}
    await store.redact(TENANT, id, lambda messages, response, items: (messages[:1], response, items))
    assert await seen(store, id) == set()


async def test_an_erased_turn_has_no_picture_left_though_another_one_continues_it(
    store: ConversationHistoryStore,
) -> None:
    id = await show(store, CAT)
    child = await show(store, DOG, parent=id)
    await store.forget(TENANT, id, erase=True)
    assert await seen(store, child) == {DOG}


def queued(id: str, *pictures: bytes, parent: str | None = None) -> Turn:
    shown = tuple(map(Picture.of, pictures))
    return Turn(id, parent, Status.QUEUED, (), b"{}", pictures=shown)


async def test_a_job_shows_its_pictures_from_its_submission_on_and_those_of_its_end(
    history: ConversationHistoryStore, jobs: Jobs
) -> None:
    id = history.new_id()
    await jobs.submit(TENANT, queued(id, CAT), b"spec", LogEntry(0, b"events"))
    assert await seen(history, id) == {CAT}
    (job,) = (await jobs.claim(0, 1)).jobs
    await jobs.finish(job.lease, with_pictures(turn(id), DOG), LogEntry(1, b"events"))
    assert await seen(history, id) == {CAT, DOG}
    await history.forget(TENANT, id)
    assert await seen(history, id) == set()


async def test_pictures_count_to_the_cap_on_bytes(capped: OpenStore) -> None:
    store = capped(bytes=100_000)
    ids = [await show(store, bytes([number]) * 30_000) for number in range(4)]
    pictures = [Picture.of(bytes([number]) * 30_000) for number in range(4)]
    found = await store.pictures(TENANT, ids[0], [each.digest for each in pictures])
    assert 1 <= len(found) <= 3
    assert pictures[-1].digest in found


async def test_pictures_are_bounded() -> None:
    with pytest.raises(ValueError, match="100 pictures"):
        msgspec.structs.replace(turn("resp_"), pictures=(Picture.of(CAT),) * (MOST_PICTURES + 1))
    with pytest.raises(ValueError, match="33,554,432 bytes"):
        msgspec.structs.replace(turn("resp_"), pictures=(Picture(bytes(32), bytes(33 << 20)),))
    with pytest.raises(ValueError, match="needs bytes"):
        msgspec.structs.replace(turn("resp_"), pictures=(Picture.of(b""),))
