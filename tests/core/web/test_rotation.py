"""Keys are changed while the service runs: SIGHUP has all processes read them again; a wrong file changes nothing."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, CoreProcess, ServiceProcess
from tests.support.waiting import wait_until

Start = Callable[..., ServiceProcess]

OLD, NEW = "sk-old-0123456789abcdef", "sk-new-0123456789abcdef"
AGAIN = "the keys were read again"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"acme:{OLD}\n")
    return path


def status(url: str, key: str, path: str = "/v1/models") -> int:
    return httpx.get(
        f"{url}{path}", headers={"authorization": f"Bearer {key}"}, timeout=60, trust_env=False
    ).status_code


def workers(service: ServiceProcess) -> list[int]:
    pid = service.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in children if "spawn_main" in _command(each)]


def _command(pid: str) -> str:
    """The command line of a process; empty where it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def statuses(service: ServiceProcess, key: str) -> set[int]:
    """What each of its processes answers, asked while the others stand still."""
    found: set[int] = set()
    all_of_them = workers(service)
    for asked in all_of_them or [0]:
        others = [each for each in all_of_them if each != asked]
        for each in others:
            os.kill(each, signal.SIGSTOP)
        try:
            found.add(status(service.url, key))
        finally:
            for each in others:
                os.kill(each, signal.SIGCONT)
    return found


def errors(log: str) -> list[str]:
    return [line for line in log.splitlines() if " ERROR " in line and "the keys stay as they were" in line]


class Keyed:
    """A service and its file of keys, which has one key of acme as each test begins."""

    def __init__(self, service: ServiceProcess, keys: Path) -> None:
        self.service, self.keys = service, keys
        before = service.log.count(AGAIN)
        self.read(f"acme:{OLD}\n")
        wait_until(lambda: service.log.count(AGAIN) > before)
        wait_until(lambda: statuses(service, OLD), wanted={200}.__eq__)
        self._begun = len(service.log)

    @property
    def log(self) -> str:
        return self.service.log[self._begun :]

    def read(self, text: str) -> None:
        self.keys.write_text(text)
        self.service.process.send_signal(signal.SIGHUP)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Path]]:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "keys").write_text(f"acme:{OLD}\n")
    service = CoreProcess(folder / "service", api_keys_file=folder / "keys", workers=2)
    yield service, folder / "keys"
    service.stop()


@pytest.fixture
def pair(two_processes: tuple[ServiceProcess, Path]) -> Keyed:
    return Keyed(*two_processes)


def test_a_key_is_rotated_without_a_request_being_refused(pair: Keyed) -> None:
    service = pair.service
    assert (statuses(service, OLD), statuses(service, NEW)) == ({200}, {401})
    id = service.client(OLD).responses.create(model=MODEL, input="My name is Ada.").id
    pair.read(f"acme:{OLD}\nacme:{NEW}\n")
    wait_until(lambda: statuses(service, NEW), wanted={200}.__eq__)
    assert statuses(service, OLD) == {200}
    pair.read(f"acme:{NEW}\n")
    wait_until(lambda: statuses(service, OLD), wanted={401}.__eq__)
    second = service.client(NEW).responses.create(model=MODEL, input="What is my name?", previous_response_id=id)
    assert "Ada" in second.output_text
    wait_until(lambda: pair.log.count(AGAIN) == 2)
    assert OLD not in service.log
    assert NEW not in service.log


def test_a_file_that_is_wrong_changes_nothing_and_is_told_once(pair: Keyed) -> None:
    service = pair.service
    for told, text in enumerate(["", f"acme:{NEW} and a word", f"acme:{NEW},globex:{NEW}"], start=1):
        pair.read(text)
        wait_until(lambda told=told: len(errors(pair.log)) == told)
        assert (statuses(service, OLD), statuses(service, NEW)) == ({200}, {401})
    pair.keys.unlink()
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(errors(pair.log)) == 4)
    assert (statuses(service, OLD), statuses(service, NEW)) == ({200}, {401})
    pair.read(f"acme:{NEW}\n")
    wait_until(lambda: statuses(service, NEW), wanted={200}.__eq__)
    assert len(errors(pair.log)) == 4
    assert all(f"HARMONIUM_API_KEYS_FILE={pair.keys}" in line for line in errors(pair.log))
    assert NEW not in service.log


def test_a_worker_that_is_replaced_has_the_keys_that_were_read_last(pair: Keyed) -> None:
    pair.read(f"acme:{NEW}\n")
    wait_until(lambda: statuses(pair.service, NEW), wanted={200}.__eq__)
    pair.keys.write_text("broken:")
    before = workers(pair.service)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: len(set(workers(pair.service)) - set(before)) == 1 and statuses(pair.service, NEW) == {200}, 60)
    assert statuses(pair.service, OLD) == {401}


def test_a_new_tenant_comes_in_and_one_that_is_gone_stays_out(start: Start, keys: Path) -> None:
    keys.write_text(f"acme:{ACME_KEY}\n")
    service = start(api_keys_file=keys)
    assert (
        service.client(ACME_KEY).responses.create(model=MODEL, input="hi", service_tier="priority").service_tier
        == "priority"
    )
    keys.write_text(f"acme:{ACME_KEY}\nglobex:{GLOBEX_KEY}\n")
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: status(service.url, GLOBEX_KEY) == 200)
    answer = service.client(ACME_KEY).responses.create(model=MODEL, input="hi", service_tier="priority")
    assert answer.service_tier == "default", "it isn't alone any more"
    keys.write_text(f"globex:{GLOBEX_KEY}\n")
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: status(service.url, ACME_KEY) == 401)
