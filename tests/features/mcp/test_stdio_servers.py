"""Servers that are programs: what one says has the bounds of any answer, and nothing of it is left at the end."""

import asyncio
import json
import logging
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from service.features.mcp.session import ToolSession
from service.features.mcp.settings import McpConnection, Program, servers_in, trusted_connection
from service.features.mcp.transports import COMPLAINT_BYTES, Processes
from service.process import Settings
from service.tools.port import ToolFailure, ToolLimits, ToolUnreachable
from tests.features.mcp.test_mcp_responses import call, kinds
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.seen import ask, prompts
from tests.support.waiting import until

SERVER = """
import json, os, subprocess, sys, time
{before}
for line in sys.stdin:
    asked = json.loads(line)
    known = {{"jsonrpc": "2.0", "id": asked.get("id")}}
    method = asked["method"]
    def say(**said):
        print(json.dumps(known | said), flush=True)
    if method == "initialize":
        info = {{"name": "s", "version": "1"}}
        say(result={{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}, "serverInfo": info}})
    elif method == "tools/list":
        say(result={{"tools": [{{"name": "t", "inputSchema": {{"type": "object"}}}}]}})
    elif method == "tools/call":
        text = "fine"
        {during}
        say(result={{"content": [{{"type": "text", "text": text}}]}})
    elif "id" in asked:
        say(error={{"code": -32601, "message": "no"}})
{after}
"""
"""A server, and what it does besides: before it listens, amid a call, and once nobody asks any more."""

LIMITS = ToolLimits(start_seconds=5, list_seconds=8, call_seconds=8, answer_bytes=100_000, answer_events=50)


def program(before: str = "", during: str = "pass", after: str = "", **more: Any) -> Program:
    code = SERVER.format(before=before, during=during.replace("\n", "\n        "), after=after)
    return Program((sys.executable, "-c", code), **more)


@asynccontextmanager
async def running(server: Program, limits: ToolLimits = LIMITS) -> AsyncIterator[ToolSession]:
    session = ToolSession(McpConnection("s", "", trusted=True, program=server), limits)
    try:
        yield session
    finally:
        await session.close()


def lives(pid: int) -> bool:
    """Whether a process is there, and is more than an entry in a table."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_a_program_knows_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARMONIUM_API_KEYS", "not for servers")
    said = "text = json.dumps([sorted(os.environ), os.environ.get('MINE'), os.getcwd()])"
    command = json.dumps(list(program(during=said).command))
    path = tmp_path / "mcp.toml"
    path.write_text(f"[s]\ncommand = {command}\ncwd = {json.dumps(str(tmp_path))}\n[s.env]\nMINE = 'yes'\n")
    connection = trusted_connection("s", servers_in(path)["s"])
    assert connection.program is not None
    async with running(connection.program) as session:
        names, mine, folder = json.loads((await session.call("t", {})).text)

    assert "PATH" in names
    assert {*names} - {"LC_CTYPE"} <= {"PATH", "HOME", "LANG", "MINE"}
    assert (mine, folder) == ("yes", str(tmp_path))


CHILD = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"


@pytest.mark.parametrize("after", ["", "time.sleep(600)"])
async def test_a_program_is_gone_with_its_children_at_the_end_of_its_session(after: str) -> None:
    async with running(program(before=CHILD, during="text = str(child.pid)", after=after)) as session:
        child = int((await session.call("t", {})).text)
        assert lives(child)

    await until(lambda: not lives(child))


@pytest.mark.parametrize(
    ("during", "why"),
    [
        ("text = 'x' * 200_000", "more than 100000 bytes"),
        ("sys.stdout.write('x' * 2_000_000)", "more than 100000 bytes"),
        ("print(json.dumps([[]] * 20_000))", "more than 10000 values"),
        ("for _ in range(100): print('{}')", "more than 50 events"),
        ("sys.exit(3)", "Its program ended"),
        ("time.sleep(600)", "did not answer within"),
        ("known['id'] = 999", "did not answer within"),
    ],
)
async def test_whatever_a_program_does_a_call_ends_in_time_and_says_why(during: str, why: str) -> None:
    call_seconds = 3 if "answer within" in why else 20
    limits = ToolLimits(list_seconds=8, call_seconds=call_seconds, answer_bytes=100_000, answer_events=50)
    async with running(program(during=during), limits) as session:
        await session.list_tools()
        with pytest.raises(ToolFailure, match=why):
            await session.call("t", {})
        assert (await session.list_tools()).tools[0].name == "t"  # it is there again


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (Program(("/nowhere/at/all",)), "can't be started: No such file"),
        (Program((sys.executable,), cwd="/nowhere/at/all"), "can't be started: No such file"),
        (program("time.sleep(600)"), "did not start within 1 s"),
        (
            program("sys.exit('x' * 1_000_000 + ' no licence for s3cret-key')", env=(("API_KEY", "s3cret-key"),)),
            "Its program ended",
        ),
    ],
)
async def test_a_program_that_can_not_be_spoken_to_says_why(
    server: Program, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(server, ToolLimits(start_seconds=1 if "1 s" in why else 20)) as session:
        with pytest.raises(ToolFailure, match=why):
            await session.list_tools()

    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert cast(Any, record).fields["tool_server"] == "s"
    assert "s3cret-key" not in str(cast(Any, record).fields)
    assert len(cast(Any, record).fields["last_words"]) <= COMPLAINT_BYTES


async def test_a_program_that_ended_between_two_calls_is_started_again() -> None:
    ending = "text = str(os.getpid()); import threading; threading.Timer(2, lambda: os._exit(3)).start()"
    async with running(program(during=ending)) as session:
        first = int((await session.call("t", {})).text)
        await until(lambda: session._heard is not None and session._heard.failure == "its program ended")
        assert int((await session.call("t", {})).text) != first


async def test_a_program_has_time_to_start_before_it_lists_its_tools() -> None:
    async with running(program("time.sleep(2)"), ToolLimits(start_seconds=20, list_seconds=1.5)) as session:
        assert (await session.list_tools()).tools[0].name == "t"


async def test_programs_have_places_which_tenants_share() -> None:
    processes = Processes(8, several=lambda: True)
    held = [processes.place("a") for _ in range(7)]
    for each in held:
        each.__enter__()
    with pytest.raises(ToolUnreachable, match="runs 8"), processes.place("a"):
        pass
    with processes.place("b"), pytest.raises(ToolUnreachable), processes.place("c"):
        pass
    held.pop().__exit__(None, None, None)
    with processes.place("c"):
        pass


async def test_an_operators_program_serves_responses_and_one_too_many_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.features.mcp.transports.PROCESSES", 1)
    path, began, go = tmp_path / "mcp.toml", tmp_path / "began", tmp_path / "go"
    waits = f"open({str(began)!r}, 'w').close()\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    command = json.dumps(list(program(during=waits).command))
    path.write_text(f'[maths]\nrequire_approval = "never"\ncommand = {command}\n')
    named = settings.model_copy(update={"mcp_servers": str(path)})
    engine = scripted([answer("Hm.")], [call("t")], [call("t")], [answer("So.")])
    tool: Any = {"type": "mcp", "server_label": "maths"}
    async with serving(named, engine) as inside, inside.client() as client, inside.http() as http:
        await ask(client, input="Go.", tools=[tool], tool_choice="none")  # lists
        first = asyncio.ensure_future(ask(client, input="Go.", tools=[tool]))
        await until(began.exists)
        second = await ask(client, input="Go.", tools=[tool])
        go.touch()
        done = await first
        other = await http.post(
            "/v1/responses", json={"model": MODEL, "input": "Go.", "tools": [tool | {"headers": {"a": "b"}}]}
        )

    assert kinds(done) == kinds(second) == ["mcp_list_tools", "mcp_call", "message"]
    assert done.output[1].to_dict()["output"] == "fine"
    assert "already runs" in str(second.output[1].to_dict()["error"])
    assert "fine<|end|>" in prompts(engine)[-1]
    assert other.status_code == 400


@pytest.mark.parametrize("said", ["'x' * 30_000_000", "'[' * 30_000_000", "'{},' * 10_000_000", "'\\\\n' * 30_000_000"])
async def test_a_program_that_floods_takes_no_memory(said: str) -> None:
    flood = program(during=f"sys.stdout.write({said}); sys.stdout.flush()")
    async with running(flood) as session:
        await session.list_tools()
        tracemalloc.start()
        try:
            with pytest.raises(ToolFailure):
                await session.call("t", {})
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 8 << 20
