"""The stored data of each release, in tests/fixtures/RELEASE: copied to a folder of a test's own, and served there.

    data/            the data folder of a `harmonium serve` that was killed: append-only file, archive and catalogue
    backup.hm        what `harmonium backup` made of it
    export.jsonl     what `harmonium export --all` printed of one tenant
    postgres.sql     what `pg_dump` made of a database with another service's archive and catalogue
    s3.jsonl         the objects of a bucket with the archive of one more: a key and a value a line
    manifest.json    the settings, the keys, the ids, and what the service answered

The services of a release believe that it has just been made: what it stores for a day is there for ever. Never change
a file of a release that is out: `making` writes the next one's.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store
from typer.testing import CliRunner, Result

from service.commands.command_line import app
from service.settings.sources import variable
from store.archive.opening import FOLDER
from tests.support import ROOT
from tests.support.archive.opened import Place
from tests.support.archive.servers import BUCKET, postgres_programs
from tests.support.service.beside import ServiceBeside
from tests.support.service.fork_server import COMMAND, ForkedProcess
from tests.support.service.process import Served, ServiceProcess

NEEDS = {"faketime": "faketime"}
"""It has the library that gives a process another time; the program itself isn't used, as it hides the process."""

FIXTURES = ROOT / "tests" / "fixtures"
DATA, BACKUP, EXPORT, MANIFEST = "data", "backup.hm", "export.jsonl", "manifest.json"
DUMP, OBJECTS = "postgres.sql", "s3.jsonl"
STORES = ("data", "backup", "archive", "export")
"""Where a release's answers come from: all of its data, the backup, the archive alone, or the export of one tenant.
Those of an archive elsewhere come from `postgres` or `s3`."""

LONG_BYTES = 1 << 16
"""The manifest has only a digest of a longer answer."""

DIGEST_BYTES = 16

LATER_SECONDS = 60
"""How long after its making a release is read."""

USED = frozenset({"used_at", "last_used_at"})
"""Members that change when somebody reads."""

COMMAND_SECONDS = 120.0

Json = Any
Done = subprocess.CompletedProcess[str]


class Release:
    """The stored data of one release."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    @cached_property
    def manifest(self) -> Mapping[str, Json]:
        """The settings, the keys, the ids and the answers."""
        return json.loads((self.folder / MANIFEST).read_text())

    def key(self, holder: str) -> str:
        """The key of a tenant, or of the administrator."""
        return self.manifest["keys"][holder]

    def made(self, name: str) -> Json:
        """An id, or what else the making has noted by a name."""
        return self.manifest["made"][name]

    def data(self, folder: Path, *parts: str) -> Path:
        """A copy of the data folder, or of these parts of it, as a service expects it."""
        copy = folder / DATA
        copy.mkdir(parents=True)
        for part in parts or [each.name for each in (self.folder / DATA).iterdir()]:
            shutil.copytree(self.folder / DATA / part, copy / part)
        if not parts:
            (copy / "lock").touch()
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        return copy

    def copy(self, name: str, folder: Path) -> Path:
        """A copy of one of its files."""
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / name
        shutil.copyfile(self.folder / name, made)
        made.chmod(0o600)
        return made

    def fill(self, place: Place) -> None:
        """Put the archive that it had in Postgres or S3 into a server's, which has nothing yet."""
        if place.kind == "postgres":
            programs = postgres_programs()
            assert programs is not None
            told = [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", place.url, "-f", self.folder / DUMP]
            subprocess.run(told, check=True, capture_output=True, timeout=COMMAND_SECONDS)
            return
        bucket = bucket_of(place)
        for line in (self.folder / OBJECTS).read_text().splitlines():
            key, value = json.loads(line)
            obstore.put(bucket, key, b64decode(value))

    def serve(self, folder: Path, **settings: object) -> ServiceProcess:
        """A service on the data in a folder, with these settings besides."""
        return ServiceProcess(folder, **self._settings(folder), **settings)

    def beside(self, folder: Path, redis_url: str, archive: str = "") -> ServiceBeside:
        """A service in this process, whose clock goes right, on an empty store and an archive: that in a folder, or at
        a URL.
        """
        archive = archive or f"sqlite://{folder / DATA / FOLDER}"
        return ServiceBeside(folder / DATA, redis_url, archive_url=archive, **self._settings(folder))

    def _settings(self, folder: Path) -> dict[str, Any]:
        (servers := folder / "mcp.toml").write_text(self.manifest["mcp_servers"])
        return {**self.manifest["settings"], "mcp_servers": str(servers)}

    def command(self, folder: Path, *arguments: str | Path, **settings: object) -> Done:
        """A command of an operator, on the data in a folder, with these settings besides."""
        return command(folder, {**self.manifest["settings"], **settings}, *arguments)

    def here(self, folder: Path, *arguments: str | Path, **settings: object) -> Result:
        """A command of an operator on the data in a folder, in this process, whose own clock goes right."""
        environment = environment_of(folder, {**self.manifest["settings"], **settings}) | {"COLUMNS": "200"}
        return CliRunner().invoke(app, [str(each) for each in arguments], env=environment)


def releases() -> list[Release]:
    """All of them, the newest last."""
    folders = (path for path in FIXTURES.iterdir() if (path / MANIFEST).exists())
    return sorted(map(Release, folders), key=lambda each: [int(number) for number in each.name.split(".")])


def command(folder: Path, settings: Mapping[str, object], *arguments: str | Path) -> Done:
    """A command of an operator, on the data in a folder; how it ends is the caller's to judge."""
    return _run(arguments, environment_of(folder, settings))


def environment_of(folder: Path, settings: Mapping[str, object]) -> dict[str, str]:
    """The environment of a command on the data in a folder."""
    known = {**settings, "data_dir": folder / DATA}
    return {variable(name): str(value) for name, value in known.items()}


def client_of(url: str, key: str, *arguments: str | Path) -> Done:
    """A command of a client of a service."""
    return _run(arguments, {"HARMONIUM_URL": url, "HARMONIUM_CLIENT_KEY": key})


def _run(arguments: Sequence[str | Path], environment: Mapping[str, str]) -> Done:
    known = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | environment
    told = [str(each) for each in arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = ForkedProcess(COMMAND, told, known, ROOT, out, errors)
        status = process.wait(COMMAND_SECONDS)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(told, status, out.read().decode(), errors.read().decode())


def bucket_of(place: Place) -> S3Store:
    """The bucket of an S3 server, as it is without harmonium."""
    names = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY", "region": "AWS_REGION"}
    known: Any = {name: place.environment[variable] for name, variable in names.items()}
    return S3Store(BUCKET, endpoint=place.environment["AWS_ENDPOINT_URL"], client_options={"allow_http": True}, **known)


def answer_of(service: Served, key: str, path: str) -> Json:
    """The answer to a GET, without what changes when somebody reads: its status, and its JSON, lines or text."""
    found = service.http(key).get(path)
    try:
        said: Json = found.json()
    except ValueError:
        said = [json.loads(line) for line in found.text.splitlines()] if found.text.startswith("{") else found.text
    return {"status": found.status_code, "answer": in_short(steady(said))}


def in_short(value: Json) -> Json:
    """A value, or the digest of a long one."""
    text = json.dumps(value, sort_keys=True).encode()
    return value if len(text) <= LONG_BYTES else {"digest": blake2b(text, digest_size=DIGEST_BYTES).hexdigest()}


def steady(value: Json) -> Json:
    """A value without what changes when somebody reads."""
    if isinstance(value, dict):
        return {name: steady(each) for name, each in value.items() if name not in USED}
    return [steady(each) for each in value] if isinstance(value, list) else value


def clock(release: Release) -> dict[str, str]:
    """The environment of processes for which a release has just been made. Skips the test without the library."""
    library = _faketime()
    if library is None:
        pytest.skip(f"no libfaketime; it is in Debian's {NEEDS['faketime']}")
    ago = int(release.manifest["made_at"] + LATER_SECONDS - time.time())
    return {"LD_PRELOAD": library, "FAKETIME": f"{ago:+d}", "NO_FAKE_STAT": "1"}


def _faketime() -> str | None:
    return next(map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
