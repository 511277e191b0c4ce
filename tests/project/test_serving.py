"""Test servers end with all connections that they took."""

import asyncio
import socket
from contextlib import suppress

import pytest
from aiohttp import web

from tests.support.serving import stop, stop_listening

SECONDS = 5.0


async def assert_hung_up(caller: socket.socket) -> None:
    """The other side is gone: closed, or reset before it was taken."""
    caller.setblocking(False)
    with caller, suppress(ConnectionError):
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(caller, 1), SECONDS) == b""


@pytest.mark.parametrize("rounds", range(6))
async def test_a_connection_on_its_way_ends_with_its_server(rounds: int) -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    caller = socket.create_connection(runner.addresses[0])
    for _ in range(rounds):
        await asyncio.sleep(0)
    await stop(runner)
    await assert_hung_up(caller)


@pytest.mark.parametrize("rounds", range(6))
async def test_a_server_that_listens_no_more_knows_whoever_it_took(rounds: int) -> None:
    taken: list[asyncio.StreamWriter] = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    caller = socket.create_connection(server.sockets[0].getsockname())
    for _ in range(rounds):
        await asyncio.sleep(0)
    await stop_listening(server)
    for writer in taken:
        writer.close()
        await writer.wait_closed()
    await assert_hung_up(caller)
