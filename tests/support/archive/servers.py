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
from http import HTTPStatus
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


def has_bucket(port: int, bucket: str = BUCKET) -> bool:
    """Whether an S3 server answers and has a bucket, which is made where there is none."""
    try:
        make_bucket(port, bucket)
    except urllib.error.HTTPError as error:
        return error.code == HTTPStatus.CONFLICT
    except OSError:
        return False
    return True


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
def postgres_folder(programs: Path) -> Iterator[tuple[Path, str | None]]:
    """A folder for a Postgres, with nothing in its databases, and the user that has to run it."""
    user = "postgres" if os.getuid() == 0 else None  # it refuses to be root's
    folder = Path(tempfile.mkdtemp())
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    try:
        made = [programs / "initdb", "--pgdata", folder / "data", "--username", USER, "--auth", "trust", "--no-sync"]
        subprocess.run(made, check=True, user=user, cwd=folder, capture_output=True, timeout=START_SECONDS)
        yield folder / "data", user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def postgres_command(programs: Path, data: Path, port: int, *, syncs: bool = False) -> Sequence[str | Path]:
    options = ("listen_addresses=127.0.0.1", f"fsync={'on' if syncs else 'off'}")
    own = [part for option in options for part in ("-c", option)]
    return [programs / "postgres", "-D", data, "-p", str(port), "-k", data.parent, *own]


def is_ready(programs: Path, port: int) -> bool:
    asked = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-q"]
    return subprocess.run(asked).returncode == 0


@contextmanager
def postgres(programs: Path, *, syncs: bool = False) -> Iterator[int]:
    """The port of a Postgres with a database `postgres`."""
    with postgres_folder(programs) as (data, user):
        port = free_port()
        with running(postgres_command(programs, data, port, syncs=syncs), user=user, end=signal.SIGINT):
            wait_until(lambda: is_ready(programs, port), START_SECONDS, "no Postgres")
            yield port


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
