"""The process that sessions are forked from, where it can't fork, or says so late."""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from service.sandbox.inside import cells
from service.sandbox.inside.zygote import Zygote
from service.sandbox.port import Limits
from service.sandbox.session import Session
from tests.support.sandbox.sandboxes import TENANT, folder_for_all, local


def test_where_no_process_can_begin_one_session_fails_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel, session = socket.socketpair()
    with ours, theirs, channel, session:
        socket.send_fds(ours, [b'{"fork": 7}'], [session.fileno()])
        ours.shutdown(socket.SHUT_WR)
        Zygote(theirs, [], linked=False).run()
        told = [json.loads(ours.recv(4096)) for _ in range(2)]
        assert told == [{"started": True, "linked": False}, {"died": 7, "status": 0}]
        assert cells.receive(channel.makefile("rb")) == {
            "failed": "no process can begin: Resource temporarily unavailable"
        }


async def test_a_cell_is_interrupted_though_the_service_was_begun_where_interrupts_are_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with folder_for_all() as base:
            sandbox = local(base)
            await sandbox.start()
            await sandbox.open("one", TENANT, Limits(seconds=0.3))
            cell = await sandbox.run("one", "call", "while True: pass")
            await sandbox.aclose()
    finally:
        signal.signal(signal.SIGINT, before)
    assert cell.ended == "timeout"


async def test_a_session_that_was_killed_before_its_process_was_known_is_killed_then(tmp_path: Path) -> None:
    session = Session("ada", Limits(), tmp_path, None)
    session.kill("it was not ready")
    process = await asyncio.create_subprocess_exec("sleep", "60")
    session.wait_for_birth(process.pid, os.pidfd_open(process.pid))
    assert await process.wait() == -signal.SIGKILL
    session.die(-signal.SIGKILL)
