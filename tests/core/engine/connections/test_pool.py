"""Connections that are kept, over real sockets: when one is used again, when it is closed, what each failure is."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.engine.names import ServerAddress
from service.engine.servers.connection import MAX_UNREAD_BYTES, Broken, RequestTarget, ServerConnection, target_of
from service.engine.servers.pool import DIALED_AT_ONCE, Pool, Unconnected
from tests.support.serving import stop_listening
from tests.support.waiting import until

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
HALF = STREAM + b"3\r\nabc\r\n"
END = b"0\r\n\r\n"
READ_BYTES = 256 * 1024


Play = Callable[["Call"], Awaitable[None]]


@dataclass
class Call:
    """One connection, as the server has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heads: list[bytes] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the other side has hung up, or this one has."""

    async def asked(self) -> bytes:
        """The body of the next request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        return await self.reader.readexactly(length)


async def answering(call: Call) -> None:
    while True:
        await call.asked()
        call.writer.write(OK)


@dataclass
class Player:
    """The server; `calls` are all connections that there were."""

    play: Play = answering
    calls: list[Call] = field(default_factory=list)
    port: int = 0
    tls: bool = False

    def target(self, host: str = "127.0.0.1", certified: str = "") -> RequestTarget:
        url = f"{'https' if self.tls else 'http'}://{host}:{self.port}"
        return target_of(ServerAddress(url, url, certified=certified))

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = Call(reader, writer)
        self.calls.append(call)
        try:
            await self.play(call)
            await reader.read()
        except (asyncio.IncompleteReadError, OSError):  # it was hung up on
            pass
        finally:
            call.ended.set()
            writer.transport.abort()


@asynccontextmanager
async def playing(play: Play = answering, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Player]:
    player = Player(play, tls=tls is not None)
    server = await asyncio.start_server(player.take, "127.0.0.1", 0, ssl=tls)
    player.port = server.sockets[0].getsockname()[1]
    try:
        yield player
    finally:
        await stop_listening(server)
        for call in player.calls:
            call.writer.transport.abort()
        await asyncio.gather(*(call.ended.wait() for call in player.calls))


def certified(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's side of TLS for a host of this name, and a client's that trusts it. Made once in a folder."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    if not certificate.exists():
        made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN={name}"
        told = ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", *made.split(), *told], check=True, capture_output=True)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    return served, ssl.create_default_context(cafile=str(certificate))


@asynccontextmanager
async def pooled(*, keeps: bool = True, connect_seconds: float = 20, **more: Any) -> AsyncIterator[Pool]:
    pool = Pool(keeps=keeps, connect_seconds=connect_seconds, **more)
    try:
        yield pool
    finally:
        await pool.close()
        assert pool.open == 0


async def post(pool: Pool, target: RequestTarget, body: bytes = b"{}") -> ServerConnection:
    async with asyncio.timeout(5):
        return await pool.send("POST", target, "/", {}, body)


async def rest(connection: ServerConnection) -> bytes:
    pieces: list[bytes] = []
    async with asyncio.timeout(5):
        while piece := await connection.read():
            pieces.append(piece)
    return b"".join(pieces)


async def whole(pool: Pool, target: RequestTarget, body: bytes = b"{}") -> bytes:
    connection = await post(pool, target, body)
    try:
        return await rest(connection)
    finally:
        connection.leave()


async def test_a_connection_is_used_again_behind_an_answer_that_was_read() -> None:
    async with playing() as server, pooled() as pool:
        assert [await whole(pool, server.target()) for _ in range(5)] == [b"ok"] * 5
        assert (len(server.calls), len(server.calls[0].heads), pool.open) == (1, 5, 1)


async def test_where_connections_are_not_kept_each_request_has_its_own_and_says_so() -> None:
    async with playing() as server, pooled(keeps=False) as pool:
        for _ in range(3):
            await whole(pool, server.target())
        assert [len(call.heads) for call in server.calls] == [1, 1, 1]
        assert all(b"\r\nconnection: close\r\n" in call.heads[0] for call in server.calls)
        await until(lambda: pool.open == 0, 2)


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    async with playing() as server, pooled(idle_seconds=0.05) as pool:
        await whole(pool, server.target())
        assert pool.open == 1
        await until(lambda: pool.open == 0, 2)
        await until(server.calls[0].ended.is_set, 2)
        await whole(pool, server.target())
        assert len(server.calls) == 2


async def test_a_probe_that_meets_a_closed_connection_is_sent_once_more_and_nothing_else_is() -> None:
    async def once(call: Call) -> None:
        await call.asked()
        call.writer.write(OK)
        await call.asked()
        call.writer.close()

    async with playing(once) as server:
        contact, target = Pool(keeps=True, connect_seconds=20), server.target()
        for _ in range(2):
            assert await contact.ask(target, "GET", "/health", None, seconds=5, most=10) == (200, b"ok")
        with pytest.raises(Broken):
            await contact.ask(target, "POST", "/abort", b"{}", seconds=5, most=10)
        assert len(server.calls) == 2
        await contact.close()


async def words() -> AsyncIterator[bytes]:
    for word in (b"some", b"", b"words"):
        yield word


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65_536


async def test_a_body_in_parts_is_sent_in_chunks() -> None:
    heard = bytearray()

    async def listens(call: Call) -> None:
        while not heard.endswith(b"0\r\n\r\n"):
            heard.extend(await call.reader.read(65_536))
        call.writer.write(OK)

    async with playing(listens) as server, pooled() as pool:
        connection = await pool.send_parts("POST", server.target(), "/file", {}, words(), stall_seconds=5)
        assert await connection.read() == b"ok"
        connection.leave()
    head, _, body = bytes(heard).partition(b"\r\n\r\n")
    assert b"\r\ntransfer-encoding: chunked" in head
    assert b"content-length" not in head
    assert body == b"4\r\nsome\r\n5\r\nwords\r\n0\r\n\r\n"


async def test_an_answer_before_the_end_of_a_body_ends_it() -> None:
    over = asyncio.Event()

    async def refuses(call: Call) -> None:
        await call.reader.readuntil(b"\r\n\r\n")
        call.writer.write(b"HTTP/1.1 413 Too large\r\ncontent-length: 0\r\n\r\n")
        await call.writer.drain()
        await over.wait()

    async with playing(refuses) as server, pooled() as pool:
        connection = await pool.send_parts("POST", server.target(), "/file", {}, endless(), stall_seconds=20)
        assert connection.answer.status == 413
        connection.leave()
        await until(lambda: pool.open == 0, 2)
        over.set()


async def test_a_body_that_nobody_takes_is_given_up() -> None:
    over = asyncio.Event()

    async def deaf(call: Call) -> None:
        await over.wait()

    async with playing(deaf) as server, pooled() as pool:
        with pytest.raises(TimeoutError):
            await pool.send_parts("POST", server.target(), "/file", {}, endless(), stall_seconds=0.1)
        await until(lambda: pool.open == 0, 2)
        over.set()


@pytest.mark.parametrize("behind", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"])
async def test_nothing_that_came_unasked_is_anybodys_answer(behind: bytes) -> None:
    late = asyncio.Event()

    async def twice(call: Call) -> None:
        await call.asked()
        call.writer.write(OK + behind)
        await late.wait()
        call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno")

    async with playing(twice) as server, pooled() as pool:
        assert await whole(pool, server.target()) == b"ok"
        late.set()
        await until(lambda: pool.open == 0, 2)
        assert await whole(pool, server.target()) == b"ok"


async def test_a_server_is_not_overrun_by_connections_and_none_waits_for_longer_than_one_may_take() -> None:
    async with playing() as server, playing() as other, pooled(connect_seconds=3.0) as pool:
        server.tls = True  # so that none of its connections comes about
        many = [asyncio.create_task(post(pool, server.target())) for _ in range(3 * DIALED_AT_ONCE)]
        await until(lambda: len(server.calls) == DIALED_AT_ONCE, 2)
        assert await whole(pool, other.target()) == b"ok", "who asks another one doesn't wait"
        assert len(server.calls) == DIALED_AT_ONCE
        failures = await asyncio.gather(*many, return_exceptions=True)
        assert {type(failure) for failure in failures} == {Unconnected}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize(("name", "trusted"), [("vllm.test", True), ("other.test", True), ("vllm.test", False)])
async def test_a_certificate_is_held_to_the_name_and_to_who_signed_it(tmp_path: Path, name: str, trusted: bool) -> None:
    served, trusting = certified(tmp_path, name)
    tls: ssl.SSLContext | None = trusting if trusted else None
    async with playing(tls=served) as server, pooled(tls=tls) as pool:
        target = server.target(certified="vllm.test")
        if name == "vllm.test" and trusted:
            assert [await whole(pool, target) for _ in range(2)] == [b"ok"] * 2
            assert pool.open == 1
        else:
            with pytest.raises(Unconnected) as raised:
                await post(pool, target)
            assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)


async def test_closing_ends_what_waits_and_what_is_idle_and_nothing_begins_behind_it() -> None:
    async def half(call: Call) -> None:
        await call.asked()
        call.writer.write(HALF)

    async with playing(half) as server, playing() as other, pooled() as pool:
        await whole(pool, other.target())
        connection = await post(pool, server.target())
        assert await connection.read() == b"abc"
        reading = asyncio.create_task(connection.read())
        await asyncio.sleep(0)
        await pool.close()
        assert pool.open == 0
        with pytest.raises(Broken):
            await reading
        connection.leave()
        with pytest.raises(Unconnected):
            await post(pool, server.target())


async def test_what_nobody_reads_is_bounded_and_comes_when_it_is_read() -> None:
    poured, amount = 0, 64 << 20

    async def pour(call: Call) -> None:
        nonlocal poured
        await call.asked()
        call.writer.write(STREAM)
        piece = b"%x\r\n%b\r\n" % (1 << 16, bytes(1 << 16))
        while poured < amount:
            call.writer.write(piece)
            await call.writer.drain()
            poured += 1 << 16
        call.writer.write(END)

    async with playing(pour) as server, pooled() as pool:
        connection = await post(pool, server.target())
        before = -1
        while before < poured:  # until it no longer gets on
            before = poured
            await asyncio.sleep(0.05)
        held = sum(map(len, connection.answer.pieces))
        assert held <= MAX_UNREAD_BYTES + READ_BYTES
        assert poured < amount
        assert len(await rest(connection)) == amount
        connection.leave()
        assert pool.open == 1
