"""The catalogue of a real store with an archive: a row for each tree that is kept, right after all that changes it."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import json
from msgspec.structs import replace
from redis.asyncio import Redis

from service.features.catalogue.describing import METADATA, MODEL, PERSON, STATUS, KeptSummary, describe, summary_in
from service.features.catalogue.opening import catalogue_for_ever
from store.archive.port import ArchiveEntry
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.ownership import ID_KEY
from store.backup.upkeep.carrying import AT_ONCE
from store.backup.upkeep.erasing import erase
from store.backup.upkeep.expiring import expire
from store.backup.upkeep.restore import Restore
from store.backup.upkeep.verifying import Verify
from store.backup.upkeep.walking import trees_of
from store.catalogue.catalogue import Catalogue, StoredRow
from store.catalogue.cataloguing import LOOKED, WHOLE, Cataloguer, tree_at
from store.catalogue.rows import fact_of
from store.errors import ArchiveRefused, ArchiveUnavailable
from store.history.conversations import Conversations, by_hand
from store.history.elsewhere import KeptQuery
from store.history.omissions import omission, omitting
from store.keys import OMISSION_MARK, digits_of
from tests.support.archive.catalogues import FILE, catalogue_at, emptied, found, put, row_of
from tests.support.archive.kept import DAY, Kept, kept, micros
from tests.support.archive.opened import Place, new_name, opened
from tests.support.store.audit import complaints
from tests.support.store.backups import RELEASE, back_up
from tests.support.store.sample import TENANT, turn
from tests.support.waiting import until

OTHER = "globex"


class Listed(NamedTuple):
    """A store with an archive that has a catalogue, found by all that was said."""

    kept: Kept
    cataloguer: Cataloguer

    @property
    def catalogue(self) -> Catalogue:
        return self.cataloguer.catalogue

    async def say(
        self,
        *texts: str,
        parent: str | None = None,
        tenant: str = TENANT,
        model: str = "gpt-oss",
        person: str = "p1",
        items: bytes | None = None,
        **metadata: str,
    ) -> list[str]:
        """Append turns in which these are asked, and answered by their capitals; nothing is archived yet."""
        ids = list[str]()
        for text in texts:
            ids.append(id := self.kept.store.new_id(parent))
            answer = {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": text.upper()}],
            }
            response = {"id": id, "model": model, "metadata": metadata, "safety_identifier": person, "output": [answer]}
            said = items or json.encode([{"type": "message", "role": "user", "content": text}])
            made = replace(turn(id, parent, text=text), response=json.encode(response), items=said)
            await self.kept.store.append(tenant, made)
            parent = id
        return ids

    async def archived(self, *texts: str, **options: object) -> list[str]:
        """The same, once it is archived."""
        ids = await self.say(*texts, **options)  # type: ignore[arg-type]
        await self.kept.archive_all()
        return ids

    async def roots(self, tenant: str = TENANT) -> list[str]:
        """The digits of the roots of all that is listed."""
        return [tree.root for tree in await self.catalogue.find(tenant, KeptQuery(100))]

    async def summary(self, id: str) -> KeptSummary:
        (tree,) = [each for each in await self.catalogue.find(TENANT, KeptQuery(100)) if each.root == digits_of(id)]
        return summary_in(tree.shown)

    async def all(self) -> dict[tuple[str, str], object]:
        """All that the catalogue says of the trees of the archive, and by what it finds them."""
        told = dict[tuple[str, str], object]()
        async for tree in trees_of(self.kept.archive, None):
            told[tree.tenant, tree.digits] = await self.catalogue.row(tree.tenant, tree_at(tree.digits))
            assert not await self.cataloguer.is_stale(tree.tenant, tree.digits)
        for tenant in (TENANT, OTHER):
            for word in ("one", "two", "other"):
                told[tenant, word] = await found(self.catalogue, word, tenant=tenant)
        return told


@pytest.fixture(scope="session", params=["sqlite"])
def ground(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place("sqlite", f"sqlite://{tmp_path_factory.mktemp('catalogues')}")


def with_catalogue(kept: Kept, catalogue: Catalogue, form: str = "words") -> Listed:
    cataloguer = Cataloguer(kept.archive, catalogue, partial(describe, all_words=True), form)
    kept.archive.listener = cataloguer
    return Listed(kept, cataloguer)


@pytest.fixture
async def listed(server_url: str, prefix: str, tmp_path: Path, redis: Redis, place: Place) -> AsyncIterator[Listed]:
    archive = Place("sqlite", f"sqlite://{tmp_path / 'archive'}")
    async with opened(archive) as values, kept(server_url, prefix, values) as made:
        await values.put(ID_KEY, b"id", only_if=None)
        yield with_catalogue(made, catalogue_at(place))
        assert await complaints(redis, prefix) == []


def test_facts_of_other_keys_and_values_are_others_however_they_are_parted() -> None:
    assert len({fact_of(METADATA, *pair) for pair in (("a", "b\0c"), ("a\0b", "c"), ("a1", "b"), ("a", "1:b"))}) == 4


async def test_each_archived_tree_has_a_row_that_says_what_it_is(listed: Listed) -> None:
    one = await listed.say("first\nwords", "two", user="alice")
    assert await listed.roots() == []
    await listed.kept.archive_all()
    other = await listed.archived("other", model="llama")
    fork = await listed.archived("three", parent=one[0])
    assert await listed.roots() == [digits_of(one[0]), digits_of(other[0])]
    summary = await listed.summary(one[0])
    assert (summary.title, summary.turns, summary.conversation) == ("first words", 3, None)
    assert summary.begun < (await listed.summary(other[0])).begun < summary.newest.created
    assert (summary.newest.id, summary.newest.status) == (fork[0], "completed")
    assert summary.newest.excerpt is not None
    assert summary.newest.excerpt.output == "THREE"
    ((tree, *_),) = [await found(listed.catalogue, "three")]
    assert tree == tree_at(digits_of(one[0]))
    for fact, trees in (
        (fact_of(METADATA, "user", "alice"), one),
        (fact_of(MODEL, "llama"), other),
        (fact_of(PERSON, "p1"), [other[0], one[0]]),
        (fact_of(STATUS, "failed"), []),
    ):
        told = await found(listed.catalogue, facts=(fact,))
        assert sorted(told) == sorted({tree_at(digits_of(id)) for id in trees})
    for words in (("alice",), ("llama",), ("first", "words", "TWO")):
        assert len(await found(listed.catalogue, *words)) == 1


async def test_a_tree_that_went_on_is_listed_first_again(listed: Listed) -> None:
    one, two = await listed.archived("one"), await listed.archived("two")
    assert await listed.roots() == [digits_of(two[0]), digits_of(one[0])]
    await listed.archived("again", parent=one[0])
    assert await listed.roots() == [digits_of(one[0]), digits_of(two[0])]


async def test_the_words_of_a_deleted_turn_go_from_the_row(listed: Listed) -> None:
    ids = await listed.archived("one", "secret", "three", user="secretary")
    assert await found(listed.catalogue, "secret")
    await listed.kept.store.forget(TENANT, ids[1])
    await listed.kept.archive_all()
    summary = await listed.summary(ids[0])
    assert (summary.turns, summary.title) == (2, "one")
    assert await found(listed.catalogue, "one", "three", "secretary")
    assert b"SECRET " not in json.encode(summary)
    assert len(await found(listed.catalogue, "secret")) == 1  # as the beginning of the metadata's
    (_, row), _ = await listed.cataloguer.row_of(TENANT, digits_of(ids[0]))
    assert row is not None
    assert "secret\n" not in row.words.lower()


@pytest.mark.parametrize("which", [0, 2])
async def test_the_title_and_the_newest_answer_are_those_of_turns_that_are_there(listed: Listed, which: int) -> None:
    ids = await listed.archived("one", "two", "three")
    await listed.kept.store.forget(TENANT, ids[which])
    await listed.kept.archive_all()
    (tree,) = await listed.catalogue.find(TENANT, KeptQuery(9))
    summary = summary_in(tree.shown)
    assert summary.turns == 2
    assert (summary.title, summary.newest.id) == (("two", ids[2]) if which == 0 else ("one", ids[1]))
    assert await found(listed.catalogue, ("one", "two", "three")[which]) == []


@pytest.mark.parametrize("whole", [True, False])
async def test_a_deleted_tree_is_not_listed(listed: Listed, whole: bool) -> None:
    ids = await listed.archived("one", "two")
    (left,) = await listed.archived("left")
    if whole:
        await listed.kept.store.forget_tree(TENANT, ids[0])
    else:
        for id in reversed(ids):
            await listed.kept.store.forget(TENANT, id)
    await listed.kept.archive_all()
    assert await listed.roots() == [digits_of(left)]
    assert await found(listed.catalogue, "one") == await found(listed.catalogue, "two") == []
    await listed.all()


@pytest.mark.parametrize("away", [True, False])
async def test_a_deletion_is_seen_before_the_archive_hears_of_it(listed: Listed, away: bool) -> None:
    (id,) = await listed.archived("one")
    (other,) = await listed.archived("other", tenant=OTHER)
    turns = ArchivedTurns(listed.kept.store, listed.kept.archive, find=listed.cataloguer.find, unknown_seconds=0)
    listed.kept.store.elsewhere = turns
    (tree,) = list(await turns.find_kept(TENANT, KeptQuery(9)))
    assert (tree.root, tree.changing, bool(tree.here)) == (digits_of(id), False, True)
    if away:
        await listed.kept.leave_memory(id)
        (tree,) = list(await turns.find_kept(TENANT, KeptQuery(9)))
        assert not tree.here
    await listed.kept.store.forget_tree(TENANT, id)
    assert [(tree.gone, tree.changing) for tree in await turns.find_kept(TENANT, KeptQuery(9))] == [(True, True)]
    await listed.kept.archive_all()
    assert not await turns.find_kept(TENANT, KeptQuery(9))
    assert [tree.root for tree in await turns.find_kept(OTHER, KeptQuery(9))] == [digits_of(other)]


async def test_of_an_erased_tenant_nothing_is_listed_but_what_came_later(listed: Listed) -> None:
    one, _ = await listed.archived("one"), await listed.archived("two")
    (other,) = await listed.archived("other", tenant=OTHER)
    at = micros()
    later = await listed.archived("later", parent=one[0])
    await erase(listed.kept.archive, listed.kept.marks, TENANT, at)
    assert await listed.roots() == [digits_of(one[0])]
    summary = await listed.summary(one[0])
    assert (summary.title, summary.turns, summary.newest.id) == ("later", 1, later[0])
    assert await found(listed.catalogue, "one") == await found(listed.catalogue, "two") == []
    assert await listed.roots(OTHER) == [digits_of(other)]
    await listed.all()


async def test_of_an_erased_tenant_no_word_is_told_before_the_archive_is_cut(listed: Listed) -> None:
    """As where a process dies behind the mark, or an archiver changes the tree meanwhile."""
    one = await listed.archived("one", "two", user="alice")
    at = micros()
    later = await listed.archived("later", parent=one[1])
    await listed.kept.marks.erase(TENANT, at)
    await listed.cataloguer.tree_changed(TENANT, digits_of(one[0]))
    summary = await listed.summary(one[0])
    assert (summary.title, summary.turns, summary.newest.id) == ("later", 1, later[0])
    assert await found(listed.catalogue, "one") == await found(listed.catalogue, "two") == []
    assert await found(listed.catalogue, facts=(fact_of(METADATA, "user", "alice"),)) == []


async def test_later_trees_of_an_erased_tenant_stay_in_the_list_while_it_is_cleared_daily(
    listed: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listed.archived("one")
    await erase(listed.kept.archive, listed.kept.marks, TENANT, micros())
    (later,) = await listed.archived("later")
    monkeypatch.setattr(listed.cataloguer, "tree_changed", None)  # a process that dies in between
    with suppress(TypeError):
        await expire(listed.kept.archive, listed.kept.memory, 0, now=time.time())
    assert await listed.roots() == [digits_of(later)]


async def test_a_person_is_found_in_a_tree_of_any_number_of_facts(listed: Listed) -> None:
    ids = await listed.archived(*(str(number) for number in range(4)))
    for number in range(30):
        labels = {f"k{each}": f"{number} {each}" for each in range(8)}
        ids += await listed.say("word", parent=ids[-1], **labels)
    ids += await listed.say("word", parent=ids[-1], person="p2")
    ids += await listed.say("word", parent=ids[-1])
    await listed.kept.archive_all()
    for person in ("p1", "p2"):
        assert len(await found(listed.catalogue, facts=(fact_of(PERSON, person),))) == 1


async def test_a_tree_is_found_by_the_metadata_of_a_conversation(listed: Listed) -> None:
    """As memory finds it: clients name a person there, too, and an erasure has to find all of them."""
    conversations = Conversations(listed.kept.store)
    id = conversations.new_id()
    first = conversations.first_turn_id(id)
    await conversations.create(TENANT, id, by_hand(first, None, ()), b'{"metadata": {"user": "alice"}}')
    await listed.kept.archive_all()
    alice, bob = ((fact_of(METADATA, "user", name),) for name in ("alice", "bob"))
    assert (
        await found(listed.catalogue, "alice")
        == await found(listed.catalogue, facts=alice)
        == [tree_at(digits_of(first))]
    )
    await conversations.amend(TENANT, id, b'{"metadata": {"user": "bob"}}')
    await listed.kept.archive_all()
    assert await found(listed.catalogue, facts=alice) == []
    assert len(await found(listed.catalogue, facts=bob)) == 1


async def test_an_item_that_was_deleted_from_a_conversation_is_found_no_more(listed: Listed) -> None:
    conversations = Conversations(listed.kept.store)
    id = conversations.new_id()
    first, second = conversations.first_turn_id(id), conversations.new_turn_id(id, OMISSION_MARK)
    said = [{"id": f"msg_{place}", "role": "user", "content": f"{word} word"} for place, word in enumerate("ab")]
    await conversations.create(TENANT, id, by_hand(first, None, (), json.encode(said)), b"{}")
    await listed.kept.archive_all()
    assert [len(await found(listed.catalogue, word)) for word in "ab"] == [1, 1]
    gone = omission(second, first, omitting(first, (), 0), b'{"omits": "msg_0"}')
    await conversations.hold(TENANT, id, "run", 10.0)
    await conversations.advance(TENANT, id, gone, hold="run")
    await listed.kept.archive_all()
    assert [len(await found(listed.catalogue, word)) for word in "ab"] == [0, 1]
    assert (await listed.summary(first)).title == "b word"


@pytest.mark.parametrize("deep", [1_000, 100_000])
async def test_a_turn_that_can_not_be_read_has_a_row_without_words(listed: Listed, deep: int) -> None:
    (id,) = await listed.say("one")
    nested = b"[" * deep + b"]" * deep
    (other,) = await listed.say("two", items=b'[{"type": "message", "content": ' + nested + b"}]")
    await listed.kept.archive_all()
    assert sorted(await listed.roots()) == sorted([digits_of(id), digits_of(other)])


async def test_a_tree_that_was_archived_while_its_tenant_was_erased_is_not_listed(listed: Listed) -> None:
    (id,) = await listed.archived("one")
    await listed.kept.marks.erase(TENANT, micros())
    await listed.catalogue.erase(TENANT, micros())
    await listed.cataloguer.tree_changed(TENANT, digits_of(id))
    assert await listed.roots() == []


async def test_expired_trees_are_not_listed(listed: Listed) -> None:
    (old,), (left,) = await listed.archived("one"), await listed.archived("two")
    await listed.kept.leave_memory(old)
    for days in (31, 200):
        await expire(listed.kept.archive, listed.kept.memory, 30, now=time.time() + days * DAY)
        assert await listed.roots() == [digits_of(left)]
    assert await listed.catalogue.row(TENANT, tree_at(digits_of(old))) == StoredRow()
    await listed.all()


async def test_a_restore_lists_all_that_it_restores(
    listed: Listed, server_url: str, prefix: str, tmp_path: Path, place: Place
) -> None:
    one = await listed.archived("one", "two", user="alice")
    other = await listed.archived("other", tenant=OTHER)
    await listed.kept.leave_memory(one[0])
    path = tmp_path / "backup"
    await back_up(server_url, prefix, path, archive=listed.kept.archive)
    place_of_second = Place("sqlite", f"sqlite://{tmp_path / 'second'}")
    async with opened(place_of_second) as archive, kept(server_url, f"{prefix}-2", archive) as made:
        second = with_catalogue(made, catalogue_at(Place("sqlite", f"{place.url}/{new_name()}")))
        async for _ in Restore(made.store, archive).run(path, release=RELEASE):
            pass
        assert await second.roots() == [digits_of(one[0])]
        assert await second.roots(OTHER) == [digits_of(other[0])]
        assert (await second.summary(one[0])).title == "one"
        assert await found(second.catalogue, facts=(fact_of(METADATA, "user", "alice"),))
        await second.all()


@pytest.mark.parametrize("how", ["deleted", "erased", "expired"])
@pytest.mark.parametrize("first", [False, True])
async def test_a_late_writer_of_a_row_does_not_bring_back_what_is_gone(
    listed: Listed, monkeypatch: pytest.MonkeyPatch, how: str, first: bool
) -> None:
    """One that has read the tree, and stands still until it is gone, be there a row before or not."""
    (id,) = await listed.archived("one")
    if first:
        await emptied(listed.catalogue)
    await listed.kept.leave_memory(id)
    put, gone, read = listed.catalogue.put, asyncio.Event(), asyncio.Event()

    async def late(*args: Any) -> bool:
        monkeypatch.undo()
        read.set()
        await gone.wait()
        return await put(*args)

    monkeypatch.setattr(listed.catalogue, "put", late)
    writing = asyncio.create_task(listed.cataloguer.tree_changed(TENANT, digits_of(id), anew=True))
    await read.wait()
    match how:
        case "deleted":
            listed.kept.store.elsewhere = listed.kept.turns
            await listed.kept.store.forget_tree(TENANT, id)
            await listed.kept.archive_all()
        case "erased":
            await erase(listed.kept.archive, listed.kept.marks, TENANT, micros())
        case _:
            await expire(listed.kept.archive, listed.kept.memory, 30, now=time.time() + 31 * DAY)
    gone.set()
    await writing
    assert await listed.roots() == []


async def test_a_catalogue_that_is_made_anew_is_as_it_was_made_on_the_way(listed: Listed) -> None:
    one = await listed.archived("one", "two", user="alice")
    gone = await listed.archived("one gone")
    await listed.archived("other", tenant=OTHER)
    await listed.archived("two", parent=one[0])
    await listed.kept.store.forget_tree(TENANT, gone[0])
    await listed.kept.archive_all()
    before = await listed.all()
    assert await all_made(listed.cataloguer) == []
    assert [made async for made in listed.cataloguer.make_whole(anew=True)][-1] == 3
    assert await listed.all() == before
    other = with_catalogue(listed.kept, listed.catalogue, "other words")
    assert (await all_made(other.cataloguer))[-1] == 3
    assert await other.all() != before
    assert (await all_made(listed.cataloguer))[-1] == 3
    assert await listed.all() == before


async def all_made(cataloguer: Cataloguer) -> list[int]:
    return [made async for made in cataloguer.make_whole()]


async def test_a_process_that_died_while_it_made_it_whole_is_followed_by_one_that_goes_on(listed: Listed) -> None:
    await asyncio.gather(*(listed.say("one") for _ in range(AT_ONCE + 2)))
    await listed.kept.archive_all()
    before = await listed.all()
    await emptied(listed.catalogue)
    assert await listed.roots() == []
    async for _ in listed.cataloguer.make_whole():
        break
    assert await listed.catalogue.note(WHOLE) == ""
    assert len(await listed.roots()) == AT_ONCE
    assert (await all_made(listed.cataloguer))[-1] == 2
    assert await listed.all() == before
    assert await listed.catalogue.note(WHOLE) == await listed.cataloguer.about() != ""


async def test_a_catalogue_that_is_lost_while_it_is_compared_is_not_whole(listed: Listed) -> None:
    for text in ("one", "two"):
        await listed.archived(text)
    await emptied(listed.catalogue)
    async for _ in listed.cataloguer.make_whole():
        await listed.catalogue.put_note(LOOKED, "")
    assert await listed.catalogue.note(WHOLE) == ""
    await all_made(listed.cataloguer)
    assert await listed.catalogue.note(WHOLE)


class Died(BaseException):
    """As if the process were killed."""


@pytest.mark.parametrize("days", [31, 200])
async def test_a_tree_that_was_about_to_expire_when_a_process_died_is_listed_no_more(
    listed: Listed, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    (old,) = await listed.archived("secret")
    await listed.kept.leave_memory(old)
    tree_changed = listed.cataloguer.tree_changed
    monkeypatch.setattr(listed.cataloguer, "tree_changed", _die)
    with pytest.raises(Died):
        await expire(listed.kept.archive, listed.kept.memory, 30, now=time.time() + days * DAY)
    monkeypatch.setattr(listed.cataloguer, "tree_changed", tree_changed)
    assert await listed.roots() == await found(listed.catalogue, "secret") == []


async def _die(*_: object) -> None:
    raise Died


async def test_a_tree_that_is_archived_while_it_is_about_to_expire_is_listed(
    listed: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = await listed.archived("old")
    await listed.kept.leave_memory(old)
    put = listed.kept.archive.put

    async def clash(key: str, value: bytes, *, only_if: str | None) -> str | None:
        monkeypatch.undo()
        found = await listed.kept.value(key)
        await put(key, found.value, only_if=only_if)
        return await put(key, value, only_if=only_if)

    monkeypatch.setattr(listed.kept.archive, "put", clash)
    await expire(listed.kept.archive, listed.kept.memory, 30, now=time.time() + 31 * DAY)
    assert await listed.roots() == [digits_of(old)]
    await listed.all()


@pytest.mark.parametrize("repair", [False, True])
async def test_verify_finds_rows_of_trees_that_are_not_there(listed: Listed, repair: bool) -> None:
    (left,), (lost,), (other,) = (
        await listed.archived("left"),
        await listed.archived("lost"),
        await listed.archived("other", tenant=OTHER),
    )
    await all_made(listed.cataloguer)
    for tenant, id in ((TENANT, lost), (OTHER, other)):
        (tree,) = [each async for each in trees_of(listed.kept.archive, tenant, digits_of(id))]
        await listed.kept.archive.delete(*tree.keys)
    for _ in range(2):
        (*_, report) = [each async for each in Verify(listed.kept.archive, None).run(most=None, repair=repair)]
        assert {(fault.what, fault.tenant) for fault in report.faults} == {("stray", TENANT), ("stray", OTHER)}
        if repair:
            assert report.left == 0
            break
    assert (await listed.roots(), await listed.roots(OTHER)) == (
        ([digits_of(left)], []) if repair else ([digits_of(lost), digits_of(left)], [digits_of(other)])
    )


async def test_shards_that_can_not_be_read_are_passed_over_and_listed_once_they_can(
    listed: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [id for text in ("one", "two", "three") for id in await listed.archived(text)]
    lost, folder = digits_of(ids[1])[:2], f"v1/{digits_of(ids[1])[:2]}/"
    some = [digits_of(id) for id in ids if not digits_of(id).startswith(lost)]
    list_keys, refusals = listed.kept.archive.list, 0

    async def refuse(prefix: str, **more: Any) -> Sequence[ArchiveEntry]:
        nonlocal refusals
        if prefix == folder:
            refusals += 1
            raise ArchiveRefused("it is damaged")
        return await list_keys(prefix, **more)

    await emptied(listed.catalogue)
    monkeypatch.setattr(listed.kept.archive, "list", refuse)
    for _ in range(2):
        assert (await all_made(listed.cataloguer))[-1:] in ([len(some)], [])
        assert await listed.catalogue.note(WHOLE)
        assert await listed.cataloguer.unread() == [lost]
        assert sorted(await listed.roots()) == sorted(some)
    assert refusals == 2
    monkeypatch.undo()
    assert [made async for made in listed.cataloguer.make_whole([lost])] == [3 - len(some)]
    assert (sorted(await listed.roots()), await listed.cataloguer.unread()) == (sorted(map(digits_of, ids)), [])


async def test_an_older_copy_and_another_machine_s_are_made_right(listed: Listed, tmp_path: Path, place: Place) -> None:
    file = Path(place.url.removeprefix("sqlite://")) / FILE
    (one,) = await listed.archived("one")
    gone = await listed.archived("secret")
    await all_made(listed.cataloguer)
    await listed.catalogue.close()
    copy = file.read_bytes()
    again = with_catalogue(listed.kept, catalogue_at(place))
    two = await again.archived("two", parent=one)
    await again.kept.store.forget_tree(TENANT, gone[0])
    await again.kept.archive_all()
    right = await again.all()
    await again.catalogue.close()
    file.write_bytes(copy)
    older = with_catalogue(listed.kept, catalogue_at(place))
    assert await found(older.catalogue, "secret")
    another = with_catalogue(listed.kept, catalogue_at(Place("sqlite", f"sqlite://{tmp_path}/another")))
    for each in (older, another):
        assert (await all_made(each.cataloguer))[-1] == 2
        assert await each.all() == right
        assert (await each.summary(one)).newest.id == two[0]
        assert await found(each.catalogue, "secret") == []
        await each.catalogue.close()


async def test_what_others_make_by_other_words_is_made_anew_once_and_then_left_to_them(
    listed: Listed, monkeypatch: pytest.MonkeyPatch, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("service.features.catalogue.opening.TIDY_SECONDS", 0.01)
    await listed.archived("one")
    other, rounds = catalogue_at(place), Counter[Cataloguer]()
    both = [
        listed.cataloguer,
        Cataloguer(listed.kept.archive, other, partial(describe, all_words=True), "all"),
    ]
    for each in both:
        monkeypatch.setattr(each, "about", _counting(each, each.about, rounds))
    async with asyncio.TaskGroup() as tasks:
        made = list[asyncio.Task[None]]()
        for each in both:  # one starts after the other
            made.append(tasks.create_task(catalogue_for_ever(listed.kept.store, each)))
            await until(lambda each=each: rounds[each] >= 8)
            assert await other.note(WHOLE) == await each.about()
        before = await Listed(listed.kept, both[1]).all()
        rounds.clear()
        await until(lambda: min(rounds[each] for each in both) >= 8)
        assert (await Listed(listed.kept, both[1]).all(), await other.note(WHOLE)) == (before, await both[1].about())
        for task in made:
            task.cancel()
    await other.close()
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == "another process makes the catalogue with another HARMONIUM_CATALOGUE_WORDS: set the same for all"


async def test_a_catalogue_of_another_archive_is_made_right_at_once(
    listed: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As somebody may put the wrong file there while the service runs."""
    monkeypatch.setattr("service.features.catalogue.opening.TIDY_SECONDS", 0.01)
    (id,) = await listed.archived("one")
    about = await listed.cataloguer.about()
    running = asyncio.create_task(catalogue_for_ever(listed.kept.store, listed.cataloguer))
    try:
        await until(lambda: listed.catalogue.note(WHOLE), wanted=about.__eq__)
        assert await put(listed.catalogue, "00aa", row_of("foreign"), "")
        await listed.catalogue.put_note(WHOLE, about.replace("id", "foreign"))
        await until(lambda: listed.catalogue.note(WHOLE), wanted=about.__eq__)
        assert await listed.roots() == [digits_of(id)]
    finally:
        running.cancel()


def _counting(
    cataloguer: Cataloguer, about: Callable[[], Awaitable[str]], rounds: Counter[Cataloguer]
) -> Callable[[], Awaitable[str]]:
    async def counted() -> str:
        rounds[cataloguer] += 1
        return await about()

    return counted


async def test_nothing_is_looked_for_in_a_catalogue_that_is_not_whole(listed: Listed) -> None:
    """As an erasure of a person would find some of it, and say that it is all."""
    (id,) = await listed.archived("one", user="alice")
    asked = KeptQuery(9, facts=(fact_of(METADATA, "user", "alice"),))
    for query in (asked, KeptQuery(9, words=("one",))):
        with pytest.raises(ArchiveUnavailable, match="is being made"):
            await listed.cataloguer.find(TENANT, query)
    assert [tree.root for tree in await listed.cataloguer.find(TENANT, KeptQuery(9))] == [digits_of(id)]
    await all_made(listed.cataloguer)
    assert [tree.root for tree in await listed.cataloguer.find(TENANT, asked)] == [digits_of(id)]


async def test_a_catalogue_of_another_archive_tells_nothing_until_it_is_made_right(listed: Listed) -> None:
    (id,) = await listed.archived("one")
    assert await put(listed.catalogue, "00aa", row_of("foreign"), "")
    await listed.catalogue.put_note(WHOLE, "another words")
    making = listed.cataloguer.make_whole()
    await anext(making)
    for query in (KeptQuery(9), KeptQuery(9, words=("foreign",))):
        with pytest.raises(ArchiveUnavailable, match="is being made"):
            await listed.cataloguer.find(TENANT, query)
    async for _ in making:
        pass
    assert [tree.root for tree in await listed.cataloguer.find(TENANT, KeptQuery(9))] == [digits_of(id)]


async def test_the_row_of_a_tree_of_many_turns_takes_the_loop_little_time(
    listed: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root,) = await listed.say("root")
    for _ in range(30):
        await asyncio.gather(*(listed.say("a", parent=root) for _ in range(100)))
    await listed.kept.archive_all()
    steps, longest, run = list[float](), list[float](), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    for _ in range(3):  # a collection of garbage falls into one of them
        steps.clear()
        await listed.cataloguer.tree_changed(TENANT, digits_of(root))
        longest.append(max(steps))
    assert min(longest) < 0.005
