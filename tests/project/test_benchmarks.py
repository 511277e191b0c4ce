"""What the benchmarks wait for, and what they reckon: a stream that breaks off fails at once, as a figure that never
comes helps nobody; and what a deployment has to be follows from what was measured.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench._background.processes import Follower
from bench._sizing import GIB, MAX_SHARDS, Costs, Demand, Machine, busiest_node, fullest_shard, plan, plan_archive
from bench.capacity import ARCHIVE, TOKENS, VLLM_TOKEN_SECONDS
from tests.support.documents import read, rows, section

ID = f"resp_{'a' * 48}"
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CREATED = b'event: response.created\ndata: {"response":{"id":"%b"}}\n\n' % ID.encode()
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
SECONDS = 10


def chunk(body: bytes) -> bytes:
    """A piece of an answer, as HTTP has it."""
    return b"%x\r\n%b\r\n" % (len(body), body)


@asynccontextmanager
async def following(*pieces: bytes, hangs_up: bool) -> AsyncIterator[Follower]:
    """A follower of a server that answers with these pieces."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if not hangs_up:
            await reader.read()
        writer.close()
        await writer.wait_closed()
        answered.set()

    answered = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        follower = Follower(lambda now, data: None)
        await follower.follow(server.sockets[0].getsockname()[1], ID)
        yield follower
        follower.close()
        await answered.wait()


@pytest.mark.parametrize(("end", "hangs_up"), [(b"", True), (LAST, True), (LAST, False)])
async def test_an_end_without_done_fails_at_once(end: bytes, hangs_up: bool) -> None:
    async with following(HEAD + chunk(CREATED), end[:3], end[3:], hangs_up=hangs_up) as follower:
        assert await follower.begun == ID
        with pytest.raises(ConnectionError, match="broken off"):
            await asyncio.wait_for(follower.ended, SECONDS)


@pytest.mark.parametrize("pieces", [(chunk(CREATED + DONE) + LAST,), (chunk(CREATED), chunk(DONE), LAST)])
async def test_done_is_the_end(pieces: tuple[bytes, ...]) -> None:
    async with following(HEAD, *pieces, hangs_up=True) as follower:
        assert await asyncio.wait_for(follower.ended, SECONDS) > 0


async def test_an_answer_that_never_begins_fails_too() -> None:
    async with following(hangs_up=True) as follower:
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(follower.begun, SECONDS)


TURN = Costs(turn_bytes=3000, redis_seconds=0.0003, process_seconds=0.002)


@pytest.mark.parametrize("memory", [64, 256, 512])
@pytest.mark.parametrize("conversations", [1000, 1_000_000, 50_000_000])
def test_what_is_planned_fits(conversations: int, memory: int) -> None:
    machine = Machine(memory * GIB)
    made = plan(TURN, Demand(conversations), machine, random.Random(1))
    assert made.nodes * made.shards_a_node >= made.shards
    assert made.shards_a_node * made.shard_gib * GIB <= machine.room
    assert made.shards * made.shard_gib >= made.gib
    assert made.by_itself >= made.shards / made.nodes


def test_a_shard_that_no_node_has_room_for_is_refused() -> None:
    with pytest.raises(ValueError, match="which no node has room for"):
        plan(TURN, Demand(1_000_000_000), Machine(16 * GIB), random.Random(1))


def test_shards_fill_evenly_where_there_is_much_in_each() -> None:
    assert 1 < fullest_shard(100_000_000, MAX_SHARDS, random.Random(1)) < 1.02
    assert fullest_shard(10_000, MAX_SHARDS, random.Random(1)) > 1.3


def test_every_shard_is_on_a_node() -> None:
    assert busiest_node(MAX_SHARDS, 1) == MAX_SHARDS
    assert busiest_node(MAX_SHARDS, 4) >= MAX_SHARDS / 4


def test_what_the_document_reckons_follows_from_what_it_has_measured() -> None:
    page = read("docs/capacity.md")
    measured, reckoned = rows(section(page, "Measured")), rows(section(page, "Reckoned"))
    (turn_bytes,) = (float(row[1].replace(",", "")) for row in measured if row[0] == "10")
    (redis_ms,) = (float(row[3]) for row in measured if row[0].startswith("it continues"))
    costs = Costs(turn_bytes, redis_ms / 1000, TOKENS * VLLM_TOKEN_SECONDS)
    assert len(reckoned) == 5
    for conversations, _, _, node, *shown in reckoned:
        demand = Demand(int(conversations.removesuffix(" M")) * 1_000_000)
        made = plan(costs, demand, Machine(int(node.removesuffix(" GiB")) * GIB), random.Random(0))
        fleet = [made.nodes, made.shards, f"{made.shard_gib:.1f}", made.shards_a_node, made.by_itself]
        assert shown[:5] == list(map(str, fleet))
        assert shown[6] == str(made.processes)


def test_what_the_document_reckons_of_an_archive_follows_from_what_it_has_measured() -> None:
    page = read("docs/capacity.md")
    (turn_bytes,) = (float(row[1].replace(",", "")) for row in rows(section(page, "Measured")) if row[0] == "10")
    reckoned = rows(section(page, "With an archive"))
    assert len(reckoned) == 3
    for conversations, _, hours, objects, files, puts, cores in reckoned:
        demand = Demand(int(conversations.removesuffix(" M")) * 1_000_000)
        made = plan_archive(Costs(turn_bytes, 0.0, 0.0), ARCHIVE, demand, Machine(64 * GIB))
        assert float(hours) == pytest.approx(made.hours, rel=0.03)
        assert float(objects) == pytest.approx(made.objects_gib, rel=0.01)
        assert float(files) == pytest.approx(made.files_gib, rel=0.01)
        assert int(puts.removesuffix(" M")) * 1_000_000 == made.puts
        assert float(cores) == pytest.approx(made.cores, rel=0.15)
