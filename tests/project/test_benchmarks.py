"""A stream that breaks off fails a benchmark at once, as a figure that never comes helps nobody."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from bench._background.processes import Follower
from bench._rig import recorded
from store.history.history import ConversationHistoryStore
from tests.support.store.sample import turn

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


async def test_what_a_store_sends_is_recorded_without_a_server() -> None:
    def calls(store: ConversationHistoryStore) -> Awaitable[object]:
        return store.append("acme", turn(store.new_id()))

    sent = await asyncio.to_thread(recorded, calls)
    assert sent
    assert all(b"EVALSHA" in command for command in sent)
