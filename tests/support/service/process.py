"""`harmonium serve` in a process of its own, as a user starts it: on a free port, with a data folder of its own; and
`harmonium worker` beside it.

They are told everything through their environment and speak through HTTP and their log. Never look inside them.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAI
from redis import Redis

from service.settings.sources import PREFIX, variable
from tests.support import ROOT
from tests.support.ports import free_port
from tests.support.service.fork_server import COMMAND, STAND_IN, ForkedProcess
from tests.support.waiting import wait_until

MODEL = "gpt-oss-20b"
ACME_KEY, GLOBEX_KEY = "sk-acme-0123456789", "sk-globex-0123456789"
START_SECONDS = 60.0
STOP_SECONDS = 40.0
HARMONIUM = Path(sys.executable).parent / "harmonium"
ALONE = (sys.executable, "-m", STAND_IN)
"""The command without the demo engine and the embedded server, with the tests' own in their places."""


def raw_request(**body: object) -> bytes:
    content = json.dumps({"model": MODEL, "input": "hi", **body}).encode()
    head = "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Process:
    """A harmonium command, which can be stopped, killed and started again with the same settings."""

    module: ClassVar[str] = COMMAND

    def __init__(self, folder: Path, *command: str, **settings: object) -> None:
        """Starts it. `folder` holds its log; `settings` are those of service/settings/settings.py."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._command = command
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._environment = (
            kept | {"PYTHONPATH": str(ROOT)} | {variable(name): str(value) for name, value in settings.items()}
        )
        self.start()

    @property
    def log(self) -> str:
        """Everything that it logged so far."""
        return (self._folder / "log").read_text()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        with (self._folder / "log").open("ab") as log:
            self._logged = log.tell()
            self.process = ForkedProcess(self.module, self._command, self._environment, self._folder, log)
        try:
            wait_until(self._ready, START_SECONDS, "not ready")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it as a power cut would."""
        self._hang_up()
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and don't wait."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """End it, gently if that works."""
        self._hang_up()
        self.ask_to_stop()
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.kill()

    def _hang_up(self) -> None:
        """Let go of what a client would hold open."""

    def _ready(self) -> bool:
        raise NotImplementedError


class WorkerProcess(Process):
    """One worker."""

    def __init__(self, folder: Path, **settings: object) -> None:
        """Starts it. `settings` must name the Redis."""
        super().__init__(folder, "worker", **settings)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log
        with (self._folder / "log").open("rb") as log:
            log.seek(self._logged)
            return b" working" in log.read()


class Served:
    """A service at a URL, and its clients."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._clients: dict[str, OpenAI] = {}
        self._https: dict[str | None, httpx.Client] = {}

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return int(self.url.rpartition(":")[2])

    def client(self, key: str = "none") -> OpenAI:
        """The official client, which never tries twice."""
        if key not in self._clients:
            self._clients[key] = OpenAI(
                base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30, http_client=self.http(key)
            )
        return self._clients[key]

    def async_client(self, key: str = "none") -> AsyncOpenAI:
        """The official client for asyncio, to be closed by whoever asked for it."""
        http = DefaultAsyncHttpxClient(trust_env=False, verify=False)  # to load certificates takes 20 ms
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30, http_client=http)

    def http(self, key: str | None = None) -> httpx.Client:
        """A plain HTTP client, for what no SDK would send."""
        if key not in self._https:
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            self._https[key] = httpx.Client(
                base_url=self.url, headers=headers, timeout=30, trust_env=False, verify=False
            )
        return self._https[key]

    def _hang_up(self) -> None:
        """Let go of what a client would hold open."""
        for client in self._https.values():
            client.close()
        self._clients.clear()
        self._https.clear()


class ServiceProcess(Served, Process):
    """One service, which stays on the same data folder and port."""

    def __init__(self, folder: Path, *options: str, **settings: object) -> None:
        """Starts it. `folder` holds its data too; `options` are those of the command line."""
        Served.__init__(self, f"http://127.0.0.1:{free_port()}")
        known = {"port": self.port, "data_dir": folder / "data", **settings}
        Process.__init__(self, folder, "serve", *options, **known)

    def redis_pid(self) -> int:
        """The process id of its embedded server."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        assert len(children) == 1, f"the service has {len(children)} child processes, not one"
        return int(children[0])

    def redis(self) -> Redis:
        """A client of its embedded server, which is found as its own lock file says."""
        runtime = (self._folder / "data" / "lock").read_text().splitlines()[1]
        (path,) = Path(runtime).glob("*.sock*")
        return Redis(unix_socket_path=str(path))

    def keys(self) -> set[bytes]:
        """Every key in its embedded server."""
        with self.redis() as redis:
            return set(redis.keys("*"))

    def memory_bytes(self) -> int:
        """How much memory it has resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def connections(self) -> int:
        """How many connections of clients it has, idle ones included."""
        self._hang_up()
        established = "01"
        rows = [row.split() for row in Path(f"/proc/{self.process.pid}/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].endswith(f":{self.port:04X}") and row[3] == established for row in rows)

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)) as connection:
            try:
                connection.request("GET", "/ready")
                return connection.getresponse().status == 200
            except ConnectionRefusedError:
                return False


class CoreProcess(ServiceProcess):
    """One service of the tests of the core."""

    module = STAND_IN


class CoreWorker(WorkerProcess):
    """One worker of the tests of the core."""

    module = STAND_IN
