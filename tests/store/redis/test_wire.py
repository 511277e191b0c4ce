"""Wires: replies belong to their rows, whoever gives up; a wire that is lost or doubted is replaced; nothing long holds
up the short rows."""

import asyncio
from collections.abc import AsyncIterator, Callable

import hiredis
import pytest
from redis import exceptions as redis_errors

from store.errors import StoreUnavailable
from store.redis import wire
from store.redis.conditions import NotPrimary
from store.redis.connection import Server, connect
from tests.support.serving import stop_listening
from tests.support.waiting import until

SECONDS = 5.0
SHORT_SECONDS = 3.0

Answer = Callable[["Caller", list[bytes]], None]


class Caller:
    """A connection to the scripted server, and the commands that came over it."""

    def __init__(self, number: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.writer = writer
        self.commands: list[list[bytes]] = []

    def say(self, *replies: bytes) -> None:
        self.writer.write(b"".join(replies))


class Scripted:
    """A server that answers as a test says; greetings by itself."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.answer: Answer = lambda caller, command: caller.say(b"+" + command[-1] + b"\r\n")
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers.append(caller := Caller(len(self.callers), writer))
        commands = hiredis.Reader()
        while data := await reader.read(1 << 16):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                if command[0] == b"CLIENT":
                    caller.say(b"+OK\r\n")
                else:
                    caller.commands.append(command)
                    self.answer(caller, command)
        writer.close()


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """A server that answers each command with its last argument, until a test says otherwise."""
    made = Scripted()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    await stop_listening(listening)
    for caller in made.callers:
        caller.writer.close()


@pytest.fixture
async def server(scripted: Scripted) -> AsyncIterator[Server]:
    """The store's way to that server, with four connections."""
    made = Server(connect(scripted.url, max_connections=4), timeout_seconds=SECONDS, attempts=3)
    yield made
    await made.close()
    assert asyncio.all_tasks() - {asyncio.current_task()} == {
        task for task in asyncio.all_tasks() if "Scripted.serve" in repr(task)
    }


async def echo(server: Server, word: str) -> str:
    """The word, from the server."""
    return (await server.command("ECHO", word)).decode()


def asked(number: int) -> list[str]:
    return [f"word {each}" for each in range(number)]


async def test_each_gets_its_own_reply_whoever_else_gives_up(server_url: str) -> None:
    server = Server(connect(server_url), timeout_seconds=SECONDS, attempts=1)
    for ticks in range(30):
        asking = [asyncio.create_task(echo(server, word)) for word in asked(60)]
        for _ in range(ticks):
            await asyncio.sleep(0)
        for task in asking[ticks % 3 :: 3]:
            task.cancel()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(each, BaseException) or each == word for each, word in zip(found, asked(60), strict=True))
    await server.close()


async def test_all_who_wait_on_a_connection_that_is_lost_ask_again_over_one_other(
    server: Server, scripted: Scripted
) -> None:
    def answer(caller: Caller, command: list[bytes]) -> None:
        if caller.number > 0:
            caller.say(b"+" + command[-1] + b"\r\n")
        elif len(caller.commands) == 50:
            caller.writer.close()

    scripted.answer = answer
    assert await asyncio.gather(*(echo(server, word) for word in asked(50))) == asked(50)
    assert len(scripted.callers) == 2


async def test_a_server_that_hangs_is_left_by_all_at_the_first_that_gives_up(
    server: Server, scripted: Scripted
) -> None:
    await echo(server, "connected")
    scripted.answer = lambda caller, command: caller.say(b"+" + command[-1] + b"\r\n") if caller.number else None
    patient = [asyncio.create_task(echo(server, word)) for word in asked(8)]
    hasty = Server(connect(scripted.url), timeout_seconds=SHORT_SECONDS, attempts=3)
    hasty.wires = server.wires
    with pytest.raises(StoreUnavailable, match="did not answer within"):
        await echo(hasty, "late")
    assert await asyncio.gather(*patient) == asked(8)
    assert len(scripted.callers) == 2


async def test_a_server_that_is_slow_is_not_left(server: Server, scripted: Scripted) -> None:
    def slowly(caller: Caller, command: list[bytes]) -> None:
        pause = 0.3 * len(caller.commands)
        asyncio.get_running_loop().call_later(pause, caller.say, b"+" + command[-1] + b"\r\n")

    scripted.answer = slowly
    hasty = Server(connect(scripted.url), timeout_seconds=SHORT_SECONDS, attempts=3)
    hasty.wires = server.wires
    found = await asyncio.gather(*(echo(hasty, word) for word in asked(20)), return_exceptions=True)
    assert {type(each) for each in found} == {str, StoreUnavailable}
    assert len(scripted.callers) == 1


async def test_so_many_rows_are_unanswered_at_once_and_the_others_wait(
    server: Server, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MOST_UNANSWERED", 8)
    scripted.answer = lambda caller, command: None
    asking = [asyncio.create_task(echo(server, word)) for word in asked(50)]
    await until(lambda: scripted.callers and len(scripted.callers[0].commands) == 8)
    for task in asking[8:20]:
        task.cancel()
    (caller,) = scripted.callers
    for number in range(38):
        await until(lambda number=number: len(caller.commands) > number)
        assert len(caller.commands) - number <= 8
        caller.say(b"+" + caller.commands[number][-1] + b"\r\n")
    assert await asyncio.gather(*asking[:8], *asking[20:]) == [*asked(8), *asked(50)[20:]]


@pytest.mark.parametrize("long", [("MGET", "a", "b"), ("SET", "a", "x" * wire.SHORT_BYTES)])
async def test_what_is_long_goes_apart_and_holds_up_nobody(
    server: Server, scripted: Scripted, long: tuple[str | int, ...]
) -> None:
    name = str(long[0]).encode()
    scripted.answer = lambda caller, command: caller.say(b"+short\r\n") if command[0] != name else None
    held = [asyncio.create_task(server.command(*long)) for _ in range(9)]
    await until(lambda: sum(len(caller.commands) for caller in scripted.callers) == 3)
    assert await server.command("GET", "a") == b"short"
    assert len(scripted.callers) == 4
    served: list[Caller] = []
    while len(served) < 9:
        for caller in scripted.callers[:3]:
            if len(caller.commands) > served.count(caller):
                served.append(caller)
                caller.say(b"+long\r\n")
        await asyncio.sleep(0)
    assert await asyncio.gather(*held) == [b"long"] * 9
    assert len(scripted.callers) == 4


REFUSALS = {
    "READONLY You can't write": NotPrimary,
    "OOM command not allowed": redis_errors.OutOfMemoryError,
    "LOADING Redis is loading": redis_errors.BusyLoadingError,
    "NOAUTH Authentication required": redis_errors.AuthenticationError,
    "MOVED 1 127.0.0.1:2": redis_errors.MovedError,
}


@pytest.mark.parametrize(("words", "kind"), REFUSALS.items(), ids=[each.split()[0] for each in REFUSALS])
async def test_a_refusal_is_the_error_of_its_code_and_nobody_else_s(
    server: Server, scripted: Scripted, words: str, kind: type[Exception]
) -> None:
    await echo(server, "connected")
    scripted.answer = lambda caller, command: caller.say(
        f"-{words}\r\n".encode() if command[-1] == b"refused" else b"+" + command[-1] + b"\r\n"
    )
    before, refused, behind = await asyncio.gather(
        echo(server, "before"),
        server.wires.row((("ECHO", "refused"),), None, ahead=True),
        echo(server, "behind"),
        return_exceptions=True,
    )
    assert (before, type(refused), behind) == ("before", kind, "behind")
    ends = issubclass(kind, redis_errors.ConnectionError)
    await until(lambda: scripted.callers[0].writer.is_closing() == ends)
    assert await echo(server, "again") == "again"
    assert len(scripted.callers) == 1 + ends


async def test_a_server_that_is_no_primary_answers_what_is_under_way_and_is_left(
    server: Server, scripted: Scripted
) -> None:
    await echo(server, "connected")

    def answer(caller: Caller, command: list[bytes]) -> None:
        if command[-1] == b"write" and caller.number == 0:
            caller.say(b"-READONLY You can't write against a read only replica.\r\n")
        elif command[-1] != b"slow":
            caller.say(b"+" + command[-1] + b"\r\n")

    scripted.answer = answer
    write, slow = asyncio.create_task(echo(server, "write")), asyncio.create_task(echo(server, "slow"))
    assert await write == "write"
    assert [caller.writer.is_closing() for caller in scripted.callers] == [False, False]
    scripted.callers[0].say(b"+slow\r\n")
    assert await slow == "slow"
    await until(scripted.callers[0].writer.is_closing)


async def test_closing_ends_all_who_wait_at_once(server: Server, scripted: Scripted) -> None:
    scripted.answer = lambda caller, command: None
    asking = [asyncio.create_task(server.command(name, "a")) for name in ["GET", "MGET"] * 200]
    await until(lambda: len(scripted.callers) == 4)
    await server.close()
    async with asyncio.timeout(SECONDS / 2):
        found = await asyncio.gather(*asking, return_exceptions=True)
    assert {str(each) for each in found} == {"the server failed: closed. Check that it runs and can be reached."}


async def test_a_reply_that_nobody_asked_for_ends_the_connection(server: Server, scripted: Scripted) -> None:
    await echo(server, "connected")
    scripted.callers[0].say(b"+surplus\r\n")
    await until(scripted.callers[0].writer.is_closing)
    assert await echo(server, "own") == "own"
