"""Real servers that an archive may be on: an S3 over HTTP, and Debian's Postgres, each on a port of its own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import ROOT
from tests.support.clients.clients import PACKAGES, node
from tests.support.ports import free_port
from tests.support.waiting import wait_until

NEEDS = {"pg_ctlcluster": "postgresql"}
START_SECONDS = 30.0
BUCKET = "archive"
USER = "harmonium"
POSTGRES = "/usr/lib/postgresql"
"""Where Debian has its releases of Postgres."""

Environment = Mapping[str, str]


def access(port: int) -> Environment:
    """The provider's variables, by which obstore finds a server on this machine."""
    return {
        "AWS_ACCESS_KEY_ID": "S3RVER",  # s3rver knows no other, and moto takes any
        "AWS_SECRET_ACCESS_KEY": "S3RVER",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


def make_bucket(port: int, bucket: str = BUCKET) -> None:
    """Ask an S3 server for a bucket. Raises OSError while it doesn't answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{bucket}", method="PUT")
    with urllib.request.urlopen(request):
        pass


def keep_versions(port: int, bucket: str) -> None:
    body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    url = f"http://127.0.0.1:{port}/{bucket}?versioning"
    with urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "text/xml"}, method="PUT")):
        pass


@contextmanager
def running(
    command: Sequence[str | Path], *, user: str | None = None, end: signal.Signals = signal.SIGTERM
) -> Iterator[subprocess.Popen[bytes]]:
    """A program, which is asked to end with the block, and has to. Python ignores SIGINT where a shell began it in the
    background.
    """
    process = subprocess.Popen(
        command, cwd=ROOT, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        process.send_signal(end)
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def s3() -> Iterator[int]:
    """The port of an S3 server with a bucket."""
    port = free_port()
    with running([sys.executable, "-m", "tests.support.archive.s3_server", str(port)]):
        wait_until(lambda: make_bucket(port), START_SECONDS, "no S3", wanted=lambda _: True, passing=OSError)
        yield port


def postgres_programs() -> Path | None:
    """The folder with the programs of the newest Postgres that is installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    if Path(POSTGRES).exists():
        releases = sorted(Path(POSTGRES).iterdir(), key=lambda path: float(path.name))
        folders += [path / "bin" for path in releases if (path / "bin" / "initdb").exists()]
    return folders[-1] if folders else None


@contextmanager
def postgres(programs: Path) -> Iterator[int]:
    """The port of a Postgres with a database `postgres`, and nothing in it."""
    user = "postgres" if os.getuid() == 0 else None  # it refuses to be root's
    folder, port = Path(tempfile.mkdtemp()), free_port()
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    made = [programs / "initdb", "--pgdata", folder / "data", "--username", USER, "--auth", "trust", "--no-sync"]
    served = [programs / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder]
    served += ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-q"]
    try:
        subprocess.run(made, check=True, user=user, cwd=folder, capture_output=True, timeout=START_SECONDS)
        with running(served, user=user, end=signal.SIGINT):
            wait_until(lambda: subprocess.run(ready).returncode == 0, START_SECONDS, "no Postgres")
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def s3rver() -> Iterator[int]:
    """The port of s3rver with a bucket: it speaks S3, and ignores conditions."""
    port = free_port()
    folder = tempfile.mkdtemp()
    program = [node(), PACKAGES / "s3rver" / "bin" / "s3rver.js", "--directory", folder]
    try:
        with running([*program, "--address", "127.0.0.1", "--port", str(port), "--configure-bucket", BUCKET]):
            wait_until(lambda: listens(port), START_SECONDS, "no s3rver", passing=OSError)
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def database(port: int, name: str = "postgres") -> str:
    """The URL of a database of such a server."""
    return f"postgresql://{USER}@127.0.0.1:{port}/{name}"


def listens(port: int) -> bool:
    """Whether a port takes connections. Raises OSError where it doesn't."""
    with socket.create_connection(("127.0.0.1", port)):
        return True
