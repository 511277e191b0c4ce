"""The embedded server: one owner a folder, nothing lost when that owner is killed, nothing left when it stops."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from service.commands.serve import StartError, redis_for
from service.process import load_settings
from store import embedded
from store.archive.opening import FOLDER
from store.embedded import EmbeddedServer
from store.errors import DataFolderBusy, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support import ROOT
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.store.sample import TENANT
from tests.support.store.servers import started_after_a_kill
from tests.support.waiting import wait_until

RESTART_SECONDS = 20.0
ACKNOWLEDGED = 50


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def chain_length(url: str, tip: str) -> int:
    store = ConversationHistoryStore(connect(url), timeout_seconds=15.0)
    length = len((await store.chain(TENANT, tip)).ids)
    await store.close()
    return length


def test_only_the_owner_can_get_at_the_folder_and_the_socket(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    with EmbeddedServer(folder) as server:
        socket = Path(server.url.removeprefix("unix://"))
        assert len(os.fsencode(socket)) <= 107
        assert [mode(path) for path in (folder, socket.parent, socket)] == [0o700, 0o700, 0o700]
    assert not socket.parent.exists()


def test_a_second_owner_of_a_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        with pytest.raises(DataFolderBusy) as caught:
            EmbeddedServer(tmp_path).start()
        assert (caught.value.path, caught.value.pid) == (str(tmp_path), os.getpid())
        with Redis(unix_socket_path=server.url.removeprefix("unix://")) as client:
            assert client.ping()


def test_a_start_deletes_the_rewrite_that_a_killed_server_left(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, Redis.from_url(server.url) as client:
        client.set("a", "b")
        client.config_set("rdb-key-save-delay", 60_000_000)  # the child waits, behind its first key
        client.bgrewriteaof()
        left = wait_until(lambda: list(tmp_path.glob("temp-*.aof")))[0]
        os.kill(server.pid, signal.SIGKILL)
        os.kill(int(left.stem.rpartition("-")[2]), signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
    server = EmbeddedServer(tmp_path)
    with started_after_a_kill(server), Redis.from_url(server.url) as client:
        assert (client.get("a"), left.exists()) == (b"b", False)


def test_a_killed_owner_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.store.programs.owner", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        server_pid = int(owner.stdout.readline())
        acknowledged = [owner.stdout.readline().strip() for _ in range(ACKNOWLEDGED)]
        owner.kill()
        acknowledged += [line.strip() for line in owner.stdout if line.endswith("\n")]
    leftover = Path((tmp_path / "lock").read_text().splitlines()[1])
    assert leftover.is_dir()
    start = time.monotonic()
    with EmbeddedServer(tmp_path) as server:
        assert time.monotonic() - start < RESTART_SECONDS
        assert server.pid != server_pid
        assert asyncio.run(chain_length(server.url, acknowledged[-1])) == len(acknowledged)
    assert not leftover.exists()


def test_a_folder_with_other_files_is_neither_used_nor_changed(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir(mode=0o755)
    (folder / "cat.jpg").write_text("purr")
    with pytest.raises(StoreUnavailable, match=r"photos holds other files \(cat.jpg\).*empty"):
        EmbeddedServer(folder).start()
    assert ([path.name for path in folder.iterdir()], mode(folder)) == (["cat.jpg"], 0o755)


def test_a_folder_of_ours_is_made_private_again(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / FOLDER).mkdir()  # an archive, which may be what is left of a store
    for _ in range(2):  # as empty as a new volume, then with our lock
        tmp_path.chmod(0o755)
        with EmbeddedServer(tmp_path):
            assert mode(tmp_path) == 0o700


def test_a_folder_whose_server_outlives_its_owner_is_refused_in_the_end(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    with EmbeddedServer(tmp_path):
        (tmp_path / "lock").write_text(f"{gone.pid}\n")
        with pytest.raises(DataFolderBusy, match=f"in use by process {gone.pid}"):
            EmbeddedServer(tmp_path, handover_seconds=0.05).start()


def test_a_server_that_can_not_start_says_why_and_lets_go_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "appendonlydir").write_text("in the way")
    with pytest.raises(StoreUnavailable, match="ended at once"):
        EmbeddedServer(tmp_path).start()
    (tmp_path / "appendonlydir").unlink()
    with EmbeddedServer(tmp_path) as server:
        assert server.pid


LOADING = """#!{python}
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[sys.argv.index("--unixsocket") + 1])
listener.listen()
client, _ = listener.accept()
asked = 0
while command := client.recv(1000):
    if b"persistence" not in command:  # the greeting of a client
        client.sendall(b"+OK\\r\\n" * command.count(b"SETINFO"))
        continue
    loaded, asked = min(asked, {until}), asked + 1
    info = f"loading:1\\r\\nloading_total_bytes:100\\r\\nloading_loaded_bytes:{{loaded}}\\r\\n"
    print("at", loaded, flush=True)
    client.sendall(f"${{len(info)}}\\r\\n{{info}}\\r\\n".encode())
"""
"""A server that reads its files back, by a byte for each question, until it stands still."""


def test_a_server_that_reads_its_files_back_is_waited_for_while_it_gets_on_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "server"
    program.write_text(LOADING.format(python=sys.executable, until=600))
    program.chmod(0o700)
    monkeypatch.setattr(embedded, "program", lambda: program)
    monkeypatch.setattr(embedded, "PROGRESS_SECONDS", 0.1)
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"(?s)got no further for 2 s: .*at 600$"):
        EmbeddedServer(tmp_path / "data", standstill_seconds=2.0).start()
    assert time.monotonic() - start > 2 * 2.0
    assert "the embedded server reads its files back:" in caplog.text
    assert caplog.messages[0].endswith(" of 100 bytes")


def test_a_data_folder_has_one_owner_and_the_second_is_told_the_way_out(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "data")
    way_out = rf"another harmonium \(process {os.getpid()}\) .* HARMONIUM_REDIS_URL"
    with EmbeddedServer(settings.data_dir), pytest.raises(StartError, match=way_out), redis_for(settings):
        pass


def test_a_service_whose_embedded_server_dies_stops_and_says_so(start: Callable[..., ServiceProcess]) -> None:
    service = start(store_fsync=True)  # else what was acknowledged within the last seconds may be gone
    id = service.client().responses.create(model=MODEL, input="hi").id
    os.kill(service.redis_pid(), signal.SIGKILL)
    assert service.wait() == 1
    assert "ended by itself" in service.log
    service.start()
    assert service.client().responses.retrieve(id).id == id
