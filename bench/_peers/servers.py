"""The gateways that are compared: how each is installed and started before a stub engine, one core for each of them.

Each has a Redis or a database of its own, so that what it stores is its own alone. The engines, the stores and the
client share the other core.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from bench._harness import HOST, OTHER_CORE, SERVER_CORE, cpu_seconds, family, free_port, held_bytes, keep_to

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
STOP_SECONDS = 10.0
LOG_CHARS = 2000

OURS, SMG = "harmonium", "smg"
"""Both speak Harmony themselves, and keep what was said in Redis."""


@dataclass
class Peer:
    """A gateway that runs."""

    name: str
    port: int
    model: str
    pid: int
    pace_port: int
    """Where its engine is told how fast to be."""
    store_pid: int | None = None
    """Its Redis."""

    def cpu_seconds(self) -> float:
        """Processor time of it and what it has started."""
        return sum(map(cpu_seconds, family(self.pid)))

    def store_seconds(self) -> float:
        """Processor time of its Redis; 0 where it has none."""
        return 0.0 if self.store_pid is None else cpu_seconds(self.store_pid)

    def held_bytes(self) -> int:
        """Resident memory of it and what it has started."""
        return sum(map(held_bytes, family(self.pid)))

    def pace(self, milliseconds: float) -> None:
        """Have its engine take so long for a token; 0 is at once."""
        with urlopen(f"http://{HOST}:{self.pace_port}/pace?ms={milliseconds}", data=b""):
            pass


class Place:
    """Where everything runs: a folder, and what was started there, which ends with it."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.folder = folder
        self._running = running

    def start(
        self, name: str, command: Sequence[str], *, core: int, env: Mapping[str, str] | None = None, url: str = ""
    ) -> int:
        """Start a process on a core, wait until `url` answers, and say its id. Raises SystemExit where it doesn't."""
        path = self.folder / f"{name}.log"
        outside = {key: value for key, value in os.environ.items() if not key.startswith("HARMONIUM_")}
        with path.open("w") as log:
            process = subprocess.Popen(
                command, env={**outside, **(env or {})}, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        keep_to(core, process.pid)
        self._running.callback(_stop, process)
        deadline = time.monotonic() + START_SECONDS
        while url and not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start:\n{path.read_text()[-LOG_CHARS:]}")
            time.sleep(0.05)
        return process.pid


@contextmanager
def running() -> Iterator[list[Peer]]:
    """Both gateways, ready and asked nothing yet. Installs what is missing."""
    with ExitStack() as stack:
        place = Place(Path(stack.enter_context(tempfile.TemporaryDirectory())), stack)
        engine = free_port()
        command = [sys.executable, "-m", "bench._peers.engine", str(engine)]
        place.start(
            "engine", command, core=OTHER_CORE, env={"PYTHONPATH": str(ROOT)}, url=f"http://{HOST}:{engine}/v1/models"
        )
        yield [_ours(place, engine), _smg(place, engine)]


def _ours(place: Place, engine: int) -> Peer:
    port, (redis, redis_pid) = free_port(), _redis(place, OURS)
    env = {
        "PYTHONPATH": str(ROOT),
        "HARMONIUM_PORT": str(port),
        "HARMONIUM_REDIS_URL": f"redis://{HOST}:{redis}/0",
        "HARMONIUM_ENGINE": "vllm",
        "HARMONIUM_ENGINE_URL": f"http://{HOST}:{engine}",
        "HARMONIUM_DATA_DIR": str(place.folder / OURS),
    }
    command = [sys.executable, "-m", "service", "serve"]
    pid = place.start(OURS, command, core=SERVER_CORE, env=env, url=f"http://{HOST}:{port}/ready")
    return Peer(OURS, port, "stub", pid, engine, redis_pid)


def _smg(place: Place, engine: int) -> Peer:
    """smg before an engine that speaks its gRPC, where it makes and reads Harmony itself."""
    programs = _installed(SMG)
    model = place.folder / "model"
    model.mkdir()
    env = {"PYTHONPATH": str(ROOT)}
    subprocess.run([programs / "python", "-m", "bench._peers.model_folder", model], env=env, check=True)
    grpc, pace, port = free_port(), free_port(), free_port()
    command = [str(programs / "python"), "-m", "bench._peers.grpc_engine", str(grpc), str(pace), str(model)]
    place.start("grpc-engine", command, core=OTHER_CORE, env=env, url=f"http://{HOST}:{pace}/health")
    redis, redis_pid = _redis(place, SMG)
    command = [
        *(str(programs / "smg"), "launch", "--host", HOST, "--port", str(port)),
        *("--prometheus-port", str(free_port()), "--log-level", "warn"),
        *("--history-backend", "redis", "--redis-url", f"redis://{HOST}:{redis}/0"),
        *("--worker-urls", f"grpc://{HOST}:{grpc}", "--backend", "vllm", "--model-path", str(model)),
    ]
    env = {"TIKTOKEN_ENCODINGS_BASE": str(model / "tiktoken")}
    pid = place.start(SMG, command, core=SERVER_CORE, env=env, url=f"http://{HOST}:{port}/v1/models")
    return Peer(SMG, port, "stub", pid, pace, redis_pid)


def _installed(name: str) -> Path:
    """Where the programs of a rival are, which are installed if they aren't there."""
    subprocess.run([ROOT / "scripts" / "setup", f"peer-{name}"], check=True)
    return ROOT / f".venv-peer-{name}" / "bin"


def _redis(place: Place, name: str) -> tuple[int, int]:
    """A Redis that keeps what it has as the service's own does; its port and process."""
    program, port, folder = shutil.which("redis-server"), free_port(), place.folder / f"redis-{name}"
    if program is None:
        raise SystemExit("there is no redis-server on the PATH")
    folder.mkdir()
    options = ("--port", str(port), "--save", "", "--appendonly", "yes", "--dir", str(folder))
    pid = place.start(f"redis-{name}", [program, *options], core=OTHER_CORE)
    deadline = time.monotonic() + START_SECONDS
    while not _listens(port):
        if time.monotonic() > deadline:
            raise SystemExit("redis-server did not start in time")
        time.sleep(0.01)
    return port, pid


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2):
            return True
    except (URLError, OSError):
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
