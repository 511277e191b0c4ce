"""The file of a backup: what is written is read again, and what is not exactly that is refused whole."""

import random
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import codec
from store.backup import blocks, records
from store.backup.blocks import END, HEADER, MAGIC, OPEN, TREES, BlockReader, BlockWriter
from store.backup.contents import Contents, Entry
from store.backup.records import VERSION, End, Erased, Header, Saved, Sums, Tree
from store.backup.target import Target
from store.errors import BadBackup, NewerFormat
from store.keys import id_of
from store.turn import Status, StoredMessage

HEAD = Header(version=VERSION, release="1.2.3", created=5, shards=2, messages=codec.FORMAT, expected=Sums(1, 1))
ENDED = [Status.COMPLETED, Status.FAILED, Status.INCOMPLETE, Status.CANCELLED]


def id_for(number: int, shard: int = 0) -> str:
    return id_of(f"{shard:02x}{number:046x}")


def saved(number: int, parent: int | None = None, **changed: object) -> Saved:
    """A turn that can be."""
    turn = Saved(
        id=id_for(number),
        parent=None if parent is None else id_for(parent),
        status=Status.COMPLETED,
        created=1,
        used=2,
        held=3,
        digest="ab",
        response=b"{}",
        items=b"[]",
    )
    return msgspec.structs.replace(turn, **changed)


def tree_of(*turns: Saved, tenant: str = "acme") -> list[records.Record]:
    return [Tree(tenant, turns[0].id, 9), *turns]


def file_of(found: list[records.Record], header: Header = HEAD, kind: int = TREES) -> BytesIO:
    """A file with right checksums and a right end, whatever its records are."""
    file = BytesIO()
    writer = BlockWriter(file)
    writer.write(HEADER, records.encoded(header))
    writer.write(kind, records.joined(list(map(records.encoded, found))))
    trees = [each for each in found if isinstance(each, Tree)]
    tree, content = None, 0
    for each in found:
        tree = each if isinstance(each, Tree) else tree
        if isinstance(each, Saved) and tree:
            content += records.content(tree, each)
    end = End(
        finished=6,
        trees=len(trees),
        turns=sum(isinstance(each, Saved) for each in found),
        deleted=0,
        tenants=1,
        content=f"{content % records.WHOLE:064x}",
        broken=0,
        unsettled=0,
        file=writer.digest,
    )
    writer.write(END, records.encoded(end))
    return file


def read(file: BytesIO) -> list[Entry | Tree]:
    return [each for found in Contents(file).blocks() for each in found]


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[Tree, list[Saved]]]:
    """Trees of any shape with turns of any kind."""
    found: list[tuple[Tree, list[Saved]]] = []
    for number in range(draw(st.integers(0, 4))):
        shard, turns = draw(st.integers(0, 1)), list[Saved]()
        for at in range(draw(st.integers(1, 6))):
            deleted = draw(st.booleans())
            message = StoredMessage("user", draw(st.binary(max_size=40)), channel=draw(st.none() | st.text(max_size=9)))
            turns.append(
                Saved(
                    id=id_for(100 * number + at, shard),
                    parent=None if at == 0 else turns[draw(st.integers(0, at - 1))].id,
                    status=draw(st.sampled_from(ENDED)),
                    created=draw(st.integers(0, 1 << 52)),
                    used=draw(st.integers(0, 1 << 52)),
                    held=draw(st.integers(0, 1 << 40)),
                    digest=draw(st.text("0123456789abcdef", min_size=32, max_size=32)),
                    messages=draw(st.sampled_from([(), (message,), (message, message)])),
                    response=None if deleted else draw(st.binary(max_size=2000)),
                    items=None if deleted else draw(st.binary(max_size=100)),
                    erased=draw(st.none() | st.builds(Erased, st.integers(0, 9), st.integers(0, 99))),
                    background=draw(st.sampled_from([None, "plain", "stream"])),
                )
            )
        tenant = draw(st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True))
        found.append((Tree(tenant, turns[0].id, draw(st.integers(1, 1 << 52))), turns))
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(conversations(), st.integers(1, 5000))
def test_what_is_written_is_read_again(tmp_path: Path, found: list[tuple[Tree, list[Saved]]], block_bytes: int) -> None:
    path = tmp_path / "backup"
    path.unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch, Target(path) as target:
        patch.setattr("store.backup.target.BLOCK_BYTES", block_bytes)
        target.begin(HEAD, None)
        for tree, turns in found:
            target.tree(tree)
            for turn in turns:
                target.turn(turn)
            target.close_tree()
        end = target.finish(finished=7, broken=0, unsettled=0)
    contents = Contents(BytesIO(path.read_bytes()))
    entries = [each for some in contents.blocks() for each in some]
    assert contents.header == HEAD
    assert contents.end == end
    assert [each for each in entries if isinstance(each, Tree)] == [tree for tree, _ in found]
    assert [each.turn for each in entries if isinstance(each, Entry)] == [turn for _, turns in found for turn in turns]
    assert contents.tally.content == end.content


def test_the_digest_of_content_knows_no_order_and_no_use() -> None:
    one, two = saved(1), saved(2)
    before = Contents(file_of([*tree_of(one), *tree_of(two)]))
    after = Contents(file_of([*tree_of(msgspec.structs.replace(two, used=77, held=7)), *tree_of(one)]))
    other = Contents(file_of([*tree_of(one), *tree_of(msgspec.structs.replace(two, response=b"{ }"))]))
    digests = []
    for contents in (before, after, other):
        list(contents.blocks())
        digests.append(contents.tally.content)
    assert digests[0] == digests[1] != digests[2]


SOUND = file_of([*tree_of(saved(1), saved(2, 1), saved(3, 1)), *tree_of(saved(4), tenant="b")]).getvalue()


def test_every_file_that_was_cut_short_is_refused() -> None:
    assert len(read(BytesIO(SOUND))) == 6
    for length in range(len(SOUND)):
        with pytest.raises(BadBackup):
            read(BytesIO(SOUND[:length]))


def test_every_byte_that_changed_is_noticed() -> None:
    for at in range(len(SOUND)):
        for flipped in (SOUND[at] ^ 1, SOUND[at] ^ 0x80, SOUND[at] ^ 0xFF):
            with pytest.raises(BadBackup):
                read(BytesIO(SOUND[:at] + bytes([flipped]) + SOUND[at + 1 :]))


def test_bytes_behind_the_end_are_refused() -> None:
    with pytest.raises(BadBackup, match="goes on behind its end"):
        read(BytesIO(SOUND + b"\0"))


def spans() -> Iterator[tuple[int, int]]:
    """Where each block of SOUND begins and ends."""
    begins = len(MAGIC)
    for block in BlockReader(BytesIO(SOUND)):
        yield begins, block.end
        begins = block.end


def test_blocks_that_are_missing_doubled_or_in_another_order_are_refused() -> None:
    parts = [SOUND[begin:end] for begin, end in spans()]
    for order in ([0, 2], [0, 1, 1, 2], [1, 0, 2], [0, 1], [0, 2, 1], [1, 2], [0, 1, 2, 2]):
        with pytest.raises(BadBackup):
            read(BytesIO(MAGIC + b"".join(parts[at] for at in order)))


@pytest.mark.parametrize(
    "foreign", [b"", b"\x1f\x8b gzip", b"REDIS0011", MAGIC[:-1], MAGIC.replace(b"\r\n", b"\n"), b"{}"]
)
def test_a_file_of_something_else_is_refused(foreign: bytes) -> None:
    with pytest.raises(BadBackup, match="no backup of harmonium"):
        read(BytesIO(foreign))


@pytest.mark.parametrize("seed", range(50))
def test_noise_is_refused_behind_any_beginning(seed: int) -> None:
    chance = random.Random(seed)
    at = chance.randrange(len(SOUND))
    with pytest.raises(BadBackup):
        read(BytesIO(SOUND[:at] + chance.randbytes(chance.randrange(1, 200))))


MADE = {
    "a turn in no conversation": [saved(1)],
    "a turn whose parent comes later": tree_of(saved(1), saved(3, 2), saved(2, 1)),
    "a turn of another conversation's": [*tree_of(saved(1)), *tree_of(saved(2), saved(3, 1))],
    "a turn twice": tree_of(saved(1), saved(2, 1), saved(2, 1)),
    "two roots": tree_of(saved(1), saved(2)),
    "a root that is another's": [Tree("acme", id_for(7), 9), saved(1)],
    "a tenant that could reach other keys": tree_of(saved(1), tenant="acme:node"),
    "an id that is none": tree_of(saved(1, id="resp_00")),
    "a shard that there is not": [Tree("acme", id_for(1, 2), 9), saved(1, id=id_for(1, 2))],
    "a turn in another shard": tree_of(saved(1), saved(2, 1, id=id_for(2, 1))),
    "one that is under way": tree_of(saved(1, status=Status.IN_PROGRESS)),
    "a number below zero": tree_of(saved(1, created=-1)),
    "a number that is too large": tree_of(saved(1, used=1 << 63)),
    "a tree that was never used": [Tree("acme", id_for(1), 0), saved(1)],
    "a digest of several words": tree_of(saved(1, digest="a b")),
    "a response without items": tree_of(saved(1, items=None)),
    "a secret that was not announced": [records.Secret(b"x" * 32)],
}


@pytest.mark.parametrize("what", MADE)
def test_a_file_that_somebody_made_is_refused_for_what_it_says(what: str) -> None:
    with pytest.raises(BadBackup):
        read(file_of(MADE[what]))


def test_an_end_that_tells_something_else_is_refused() -> None:
    file, header = BytesIO(), records.encoded(HEAD)
    writer = BlockWriter(file)
    writer.write(HEADER, header)
    end = End(1, 1, 1, 0, 1, "0" * 64, 0, 0, writer.digest)
    writer.write(END, records.encoded(end))
    with pytest.raises(BadBackup, match="1 turns, and it has 0"):
        read(file)


@pytest.mark.parametrize("payload", [b"\xc1", b"", zstandard.compress(b"\x91\x01"), zstandard.compress(b"not msgpack")])
def test_a_block_that_is_no_list_of_records_is_refused(payload: bytes) -> None:
    file = BytesIO()
    writer = BlockWriter(file)
    writer.write(HEADER, records.encoded(HEAD))
    writer._compressor = type("Plain", (), {"compress": staticmethod(bytes)})()  # type: ignore[assignment]
    writer.write(TREES, payload)
    with pytest.raises(BadBackup):
        read(file)


def test_a_frame_that_names_no_size_or_too_large_a_one_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_BLOCK_BYTES", 1000)
    bomb = zstandard.compress(b"\0" * 100_000)
    endless = zstandard.ZstdCompressor(write_content_size=False).compress(b"\x90")
    for frame in (bomb, endless):
        file = BytesIO()
        writer = BlockWriter(file)
        writer.write(HEADER, records.encoded(HEAD))
        writer._compressor = type("Plain", (), {"compress": staticmethod(bytes)})()  # type: ignore[assignment]
        writer.write(TREES, frame)
        with pytest.raises(BadBackup, match="bytes, and may have"):
            read(file)


def test_a_later_version_is_refused_as_such() -> None:
    with pytest.raises(NewerFormat):
        read(file_of([], msgspec.structs.replace(HEAD, version=VERSION + 1)))
    with pytest.raises(BadBackup, match="which this release doesn't know"):
        read(file_of([], msgspec.structs.replace(HEAD, format="others")))


def test_members_of_a_later_release_are_passed_over() -> None:
    file = BytesIO()
    writer = BlockWriter(file)
    header = msgspec.msgpack.decode(records.encoded(HEAD)) | {"compression": "later"}
    writer.write(HEADER, msgspec.msgpack.encode(header))
    assert Contents(file).header == HEAD


def begun(path: Path, turns: int) -> Target:
    """A backup that was cut short amid its second conversation."""
    target = Target(path)
    target.begin(HEAD, None)
    target.tree(Tree("acme", id_for(1), 9))
    target.turn(saved(1, response=random.Random(1).randbytes(blocks.BLOCK_BYTES)))
    target.close_tree()
    target.tree(Tree("acme", id_for(2), 9))
    target.turn(saved(2))
    for number in range(3, 3 + turns):
        target.turn(saved(number, number - 1, response=random.Random(number).randbytes(100_000)))
    target._file.close()
    return target


@pytest.mark.parametrize("cut", [0, 1, 100_000, 300_000])
def test_a_backup_that_was_cut_short_goes_on_after_the_last_conversation_that_is_whole(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "backup"
    partial = begun(path, 9).partial
    partial.write_bytes(partial.read_bytes()[: partial.stat().st_size - cut])
    with Target(path) as target:
        assert target.go_on(HEAD)
        assert target.seen == {f"acme/{id_for(1)[5:]}"}
        target.tree(Tree("acme", id_for(2), 9))
        target.turn(saved(2))
        target.close_tree()
        target.finish(finished=7, broken=0, unsettled=0)
    assert [each.turn.id for each in read(BytesIO(path.read_bytes())) if isinstance(each, Entry)] == [
        id_for(1),
        id_for(2),
    ]


def test_a_partial_file_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    begun(path, 0)
    with Target(path) as target, pytest.raises(BadBackup, match="begun for something else"):
        target.go_on(msgspec.structs.replace(HEAD, tenant="b"))
    (tmp_path / "other.partial").write_bytes(b"something")
    with Target(tmp_path / "other") as target:
        assert not target.go_on(HEAD)


def test_a_file_that_is_there_is_not_replaced_and_two_backups_do_not_write_one(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    with Target(path), pytest.raises(BlockingIOError, match="another backup writes"):
        Target(path)
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        Target(path)
    assert path.read_text() == "precious"


def test_open_blocks_are_those_in_which_a_conversation_goes_on(tmp_path: Path) -> None:
    kinds = [block.kind for block in BlockReader(BytesIO(SOUND))]
    assert kinds == [HEADER, TREES, END]
    with begun(tmp_path / "backup", 9).partial.open("rb") as file:
        blocks_read = iter(BlockReader(file))
        assert [next(blocks_read).kind for _ in range(3)] == [HEADER, TREES, OPEN]
        with pytest.raises(BadBackup, match="cut short"):
            next(blocks_read)
