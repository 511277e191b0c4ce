"""The file of a backup: what is written is read again, and what is not exactly that is refused whole."""

import os
import random
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
import zstandard

from store import codec
from store.archive.archive import Archive
from store.backup.archiving.marks import Mark
from store.backup.archiving.parts import MAGIC, MOST_HELD_BYTES, MOST_PART_BYTES, Part, decode, encode, key_of
from store.backup.records import ErasedMessages, Saved
from store.backup.upkeep.backup_file import (
    DIGEST_KEY,
    HEADER_KEY,
    VERSION,
    BackupHeader,
    BackupProgress,
    BackupTarget,
    Contents,
    TurnTotals,
)
from store.backup.upkeep.walking import TreeParts
from store.errors import ArchiveDamaged, BadBackup, NewerFormat
from store.keys import id_of
from store.turn import Status, StoredMessage
from tests.support.store.backups import contents_of, mode

HEAD = BackupHeader(release="1.2.3", created=5, shards=2)
TENANT = "acme"


def id_for(number: int, tree: int = 1, shard: int = 0) -> str:
    return id_of(f"{shard:02x}{tree:018x}{number:028x}")


def saved(number: int, above: int | None = None, **changed: object) -> Saved:
    """A turn that can be, in the first tree."""
    parent = None if above is None else id_for(above)
    turn = Saved(id_for(number), Status.COMPLETED, 1, 2, 3, "ab", parent=parent, response=b"{}", items=b"[]")
    return msgspec.structs.replace(turn, **changed)


def values_of(*turns: Saved, tenant: str = TENANT) -> dict[str, bytes]:
    return {f"v1/00/t.{tenant}/{1:018x}/0": encode(Part(turns))}


async def write(path: Path, values: dict[str, bytes], header: BackupHeader = HEAD) -> BackupHeader:
    """A file with these values, and with right sums, whatever they are."""
    target = BackupTarget(path)
    async with target.opening(header, resume=False) as file:
        await put_all(file, values)
        steps = [step async for step in target.finish(finished=7, broken=0, unsettled=0)]
    assert all(isinstance(step, BackupProgress) for step in steps[:-1])
    (end,) = (step for step in steps if isinstance(step, BackupHeader))
    return end


async def put_all(file: Archive, values: dict[str, bytes]) -> None:
    for key, value in values.items():
        await file.put(key, value, only_if=None)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def overwrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


SOUND = {
    **values_of(saved(1), saved(2, 1), saved(3, 1, erased=ErasedMessages(1, 9), background="stream", submission="cd")),
    key_of("b", f"01{2:046x}"): encode(
        Part((saved(4, id=f"resp_01{2:046x}", messages=(StoredMessage("user", b"x"),)),))
    ),
    "v1/00/gone/t.acme": b'{"at":5,"version":1}',
    "v1/00/hold/t.b": b'{"at":5,"version":1}',
}


@pytest.fixture
async def sound(tmp_path: Path) -> Path:
    await write(tmp_path / "sound", SOUND)
    return tmp_path / "sound"


async def test_what_is_written_is_read_again_from_one_file_that_its_owner_alone_may_read(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    end = await write(path, SOUND)
    assert await contents_of(path) == end
    assert (end.trees, end.turns, end.tenants, end.finished) == (2, 4, 2, 7)
    assert os.listdir(tmp_path) == ["backup"]  # also once it was read
    assert mode(path) == 0o600


async def test_the_digest_of_content_knows_no_order_and_no_use(tmp_path: Path) -> None:
    one = await write(tmp_path / "1", values_of(saved(1), saved(2, 1)))
    two = await write(tmp_path / "2", values_of(saved(2, 1, used=77, held=7), saved(1)))
    other = await write(tmp_path / "3", values_of(saved(1), saved(2, 1, response=b"{ }")))
    assert one.content == two.content != other.content


async def test_a_file_that_was_cut_short_is_refused(sound: Path) -> None:
    whole = content_of(sound)
    for length in {0, 1, 15, 100, *range(1_000, len(whole), 3_000), len(whole) - 1}:
        overwrite(sound, whole[:length])
        with pytest.raises(BadBackup):
            await contents_of(sound)


async def test_a_bit_that_changed_is_noticed_or_changes_nothing_that_is_read(sound: Path) -> None:
    whole, end, noticed, chance = content_of(sound), await contents_of(sound), 0, random.Random(1)
    at_random = [at for at in range(len(whole)) if whole[at]]
    for at in chance.sample(at_random, 150):
        overwrite(sound, whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        try:
            assert await contents_of(sound) == end  # in a time or a number of SQLite's own
        except (BadBackup, NewerFormat):
            noticed += 1
    assert noticed > 75


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM object WHERE key LIKE 'v1/00/t.%'",
        "UPDATE object SET value = '{\"at\":6,\"version\":1}' WHERE key LIKE 'v1/00/gone/%'",
        "UPDATE object SET value = zeroblob(100000000) WHERE key LIKE 'v1/00/t.%'",
        "UPDATE object SET key = 'v1/00/t.acme/000000000000000001/1' WHERE key LIKE 'v1/00/t.%'",
        "UPDATE object SET key = '../' || key WHERE key LIKE 'v1/00/t.%'",
        "UPDATE object SET key = replace(key, 't.acme', 't.acme:node') WHERE key LIKE 'v1/00/t.%'",
        f"UPDATE object SET value = replace(value, '1.2.3', '1.2.4') WHERE key = '{HEADER_KEY}'",
        f"DELETE FROM object WHERE key = '{HEADER_KEY}'",
        f"DELETE FROM object WHERE key = '{DIGEST_KEY}'",
        "CREATE TABLE other (a)",
        "DROP TABLE object",
    ],
)
async def test_a_value_that_was_changed_moved_or_taken_away_is_noticed(statement: str, sound: Path) -> None:
    with closing(sqlite3.connect(sound)) as file:
        file.execute(statement)
        file.commit()
    with pytest.raises(BadBackup):
        await contents_of(sound)


@pytest.mark.parametrize("foreign", [b"", b"\x1f\x8b gzip", b"REDIS0011", b"{}", b"SQLite format 3\0" + b"x" * 9_000])
async def test_a_file_of_something_else_is_refused(foreign: bytes, tmp_path: Path) -> None:
    overwrite(tmp_path / "other", foreign)
    with pytest.raises(BadBackup):
        await contents_of(tmp_path / "other")


ENDLESS = MAGIC + bytes([1, 0, codec.ZSTD]) + zstandard.ZstdCompressor(write_content_size=False).compress(b"\x90")
AT = f"v1/00/t.{TENANT}/{1:018x}/0"
MANY = 40 << 20


def zeros(count: int) -> dict[str, bytes]:
    """A value that comes to so many bytes."""
    return {AT: MAGIC + bytes([1, 0, codec.ZSTD]) + zstandard.compress(b"\0" * count)}


def many(before: bytes, each: bytes) -> dict[str, bytes]:
    """A value that comes to many small ones: some 40 MiB of them behind the first bytes, in a frame of some KB."""
    count = MANY // len(each)
    packed = before + b"\xdd" + count.to_bytes(4) + each * count
    return {AT: MAGIC + bytes([1, 0, codec.ZSTD]) + zstandard.compress(packed)}


MADE: dict[str, dict[str, bytes] | Callable[[], dict[str, bytes]]] = {
    "a turn of another tree": values_of(saved(1), saved(2, 1, id=id_for(2, tree=2))),
    "a parent in another tree": values_of(saved(1), saved(2, parent=id_for(2, tree=2))),
    "an id that is none": values_of(saved(1, id="resp_00")),
    "a shard that there is not": {key_of(TENANT, f"02{1:046x}"): encode(Part((saved(1, id=f"resp_02{1:046x}"),)))},
    "one that is under way": values_of(saved(1, status=Status.IN_PROGRESS)),
    "a number that is too large": values_of(saved(1, used=1 << 63)),
    "a time that no clock has": values_of(saved(1, created=1 << 62)),
    "turns in a circle": values_of(saved(1), saved(2, 4), saved(3, 2), saved(4, 3), saved(5, 4)),
    "a digest of several words": values_of(saved(1, digest="a b")),
    "a response that is no JSON": values_of(saved(1, response=b"\xff\x00{")),
    "a response of brackets": values_of(saved(1, response=b'{"a":' + b"[" * 100_000)),
    "items with a text that is none": values_of(saved(1, items=b'["\xff"]')),
    "a deleted turn that is none": {AT: encode(Part((saved(1),), gone={"resp_1": True}))},
    "a part that is missing": {AT: encode(Part((saved(1),), parts=2))},
    "a tree without its first part": {AT[:-1] + "1": encode(Part((saved(1),)))},
    "a secret that was not announced": {"v1/store/secret": b"x" * 32},
    "more parts than there can be": {AT: encode(Part((saved(1),), parts=1 << 40))},
    "a mark from after its end": {"v1/00/gone/t.acme": msgspec.json.encode(Mark(1 << 52))},
    "no part": {AT: b"something"},
    "a frame that comes to a gigabyte": lambda: zeros(1 << 30),
    "a frame that doesn't say its size": {AT: ENDLESS},
    "a frame of zeros": lambda: zeros(MOST_PART_BYTES),
    "a frame of empty messages": lambda: many(b"\x81\xa5turns\x91\x82\xa2id\xa0\xa8messages", b"\x92\xa0\xc4\x00"),
}


@pytest.mark.parametrize("what", MADE)
async def test_a_file_that_somebody_made_is_refused_for_what_it_says(what: str, tmp_path: Path) -> None:
    path, values = tmp_path / "made", MADE[what]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contents, "_tree", _believe)
        patch.setattr(Contents, "_other", lambda self, key, value: self._sum(key, sha256(value).digest()))
        patch.setattr(Contents, "header", lambda self, head, digest: head)
        await write(path, values() if callable(values) else values)
    tracemalloc.start()
    with pytest.raises(BadBackup) as refused:
        await contents_of(path)
    assert "it says" not in str(refused.value)
    assert "digest is not" not in str(refused.value)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MOST_HELD_BYTES


def test_nothing_is_made_that_is_too_large_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.backup.archiving.parts.MOST_HELD_BYTES", 8 << 20)
    for size, count in ((3 << 20, 0), (0, 15_000)):
        turn = saved(1, response=b"x" * size, items=b"[]", messages=(StoredMessage("user", tokens=b"x" * 90),) * count)
        assert decode(encode(Part((turn,)))).turns == (turn,)
        with pytest.raises(ValueError, match="bytes of memory"):
            encode(Part((turn, saved(2, response=b"x" * 2 * size, items=b"[]", messages=turn.messages))))


async def _believe(contents: Contents, tree: TreeParts) -> None:
    """Read a tree as somebody does who checks nothing."""
    for key in sorted(entry.key for entry in tree.parts.values()):
        value = await contents._value(key)
        contents._sum(key, sha256(value).digest())
        with suppress(ArchiveDamaged):
            for turn in decode(value).turns if len(value) < 10_000 else ():
                contents.tally.add(tree.tenant, turn)


async def test_totals_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TurnTotals, "add", lambda *_: None)
        await write(tmp_path / "one", values_of(saved(1)))
    with pytest.raises(BadBackup, match="it says that it has 0 turns, and it has 1"):
        await contents_of(tmp_path / "one")


async def test_a_later_version_is_refused_as_such(tmp_path: Path) -> None:
    await write(tmp_path / "later", {}, msgspec.structs.replace(HEAD, version=VERSION + 1))
    with pytest.raises(NewerFormat):
        await contents_of(tmp_path / "later")
    await write(tmp_path / "other", {}, msgspec.structs.replace(HEAD, format="others"))
    with pytest.raises(BadBackup, match="which this release doesn't know"):
        await contents_of(tmp_path / "other")


def test_a_release_with_another_field_of_a_message_accepts_todays_backups() -> None:
    class Later(StoredMessage, frozen=True, array_like=True):
        more: str | None = None

    message = StoredMessage("user", b"1234", "final", item=3)
    totals, later = TurnTotals(), TurnTotals()
    totals.add(TENANT, saved(1, messages=(message,)))
    later.add(TENANT, saved(1, messages=(Later(*msgspec.structs.astuple(message)),)))
    assert later.header_with(HEAD) == totals.header_with(HEAD)


async def test_a_backup_that_was_cut_short_is_gone_on_with_and_has_no_name_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    async with BackupTarget(path).opening(HEAD, resume=False) as file:
        await put_all(file, SOUND)
    assert os.listdir(tmp_path) == ["backup.partial"]
    with pytest.raises(BadBackup, match="has not come to the end"):
        await contents_of(tmp_path / "backup.partial")
    later = msgspec.structs.replace(HEAD, created=9, release="2")
    target = BackupTarget(path)
    async with target.opening(later, resume=True) as file:
        assert {entry.key for entry in await file.list("v1/")} == SOUND.keys()
        steps = [step async for step in target.finish(finished=12, broken=0, unsettled=0)]
    assert (steps[-1].created, steps[-1].turns) == (HEAD.created, 4)
    assert await contents_of(path) == steps[-1]


async def test_a_partial_file_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    async with BackupTarget(path).opening(HEAD, resume=False) as file:
        await put_all(file, SOUND)
    with pytest.raises(BadBackup, match="begun for something else"):
        async with BackupTarget(path).opening(msgspec.structs.replace(HEAD, tenant="b"), resume=True):
            pass
    async with BackupTarget(path).opening(HEAD, resume=False) as file:
        assert not await file.list("v1/")
    overwrite(tmp_path / "other.partial", b"something")
    async with BackupTarget(tmp_path / "other").opening(HEAD, resume=True) as file:
        assert not await file.list("v1/")


async def test_a_file_that_is_there_is_not_replaced_and_two_backups_do_not_write_one(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    async with BackupTarget(path).opening(HEAD, resume=False):
        with pytest.raises(BlockingIOError, match="another backup writes"):
            BackupTarget(path)
    overwrite(path, b"precious")
    with pytest.raises(FileExistsError):
        BackupTarget(path)
    assert content_of(path) == b"precious"
