"""A pool gives away the connection that was used last, where nothing is wrong with it, and loses none."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from store.redis.client import PrimaryPool
from store.redis.connection import connect
from tests.support.waiting import until


@pytest.fixture
async def pool(server_url: str) -> AsyncIterator[PrimaryPool]:
    """A pool of connections to a server, one of which is idle."""
    client = connect(server_url)
    assert isinstance(client, Redis)
    pool = client.connection_pool
    assert isinstance(pool, PrimaryPool)
    await pool.release(await pool.get_connection())
    yield pool
    await pool.aclose()


async def test_the_connection_that_was_used_last_is_given_again(pool: PrimaryPool) -> None:
    first, second = await pool.get_connection(), await pool.get_connection()
    await pool.release(first)
    await pool.release(second)
    assert await pool.get_connection() is second
    assert await pool.get_connection() is first


async def test_one_on_which_something_lies_unread_is_made_anew(pool: PrimaryPool) -> None:
    connection = await pool.get_connection()
    await connection.send_command("PING")
    await until(connection.can_read)
    await pool.release(connection)
    again = await pool.get_connection()
    await again.send_command("ECHO", "mine")
    assert await again.read_response() == b"mine"


async def test_one_that_the_server_has_closed_is_made_anew(pool: PrimaryPool) -> None:
    connection, other = await pool.get_connection(), await pool.get_connection()
    await connection.send_command("CLIENT", "ID")
    id = await connection.read_response()
    await pool.release(connection)
    await other.send_command("CLIENT", "KILL", "ID", id)
    assert await other.read_response() == 1
    again = await pool.get_connection()
    await again.send_command("ECHO", "mine")
    assert await again.read_response() == b"mine"


async def test_one_that_is_waited_for_in_vain_is_idle_again(pool: PrimaryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = await pool.get_connection()
    await pool.release(connection)

    async def never(*given: object) -> bool:
        return await asyncio.get_running_loop().create_future()

    with monkeypatch.context() as patched:
        patched.setattr(connection, "can_read", never)
        asking = asyncio.create_task(pool.get_connection())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
    assert await asyncio.wait_for(pool.get_connection(), 10) is connection


async def test_one_that_is_doubted_is_closed_without_waiting_for_its_end(
    pool: PrimaryPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await pool.get_connection()

    async def late() -> None:
        raise redis_errors.TimeoutError("Timed out closing connection")

    monkeypatch.setattr(connection._writer, "wait_closed", late)  # pyright: ignore
    pool.doubt()
    await pool.release(connection)
    again = await pool.get_connection()
    await again.send_command("ECHO", "mine")
    assert (again, await again.read_response()) == (connection, b"mine")
