"""The stored data of each release, in tests/fixtures/RELEASE: copied to a folder of a test's own, and served there.

    data/            the data folder of a `harmonium serve` that was killed: append-only file, archive and catalogue
    backup.hm        what `harmonium backup` made of it
    export.jsonl     what `harmonium export --all` printed of one tenant
    manifest.json    the settings, the keys, the ids, and what the service answered

The services of a release believe that it has just been made: what it stores for a day is there for ever. Never change
a file of a release that is out: `making` writes the next one's.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.commands.command_line import app
from service.settings.sources import variable
from store.archive.opening import FOLDER
from tests.support import ROOT
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import HARMONIUM, Served, ServiceProcess

NEEDS = {"faketime": "faketime"}
"""It has the library that gives a process another time; the program itself isn't used, as it hides the process."""

FIXTURES = ROOT / "tests" / "fixtures"
DATA, BACKUP, EXPORT, MANIFEST = "data", "backup.hm", "export.jsonl", "manifest.json"
STORES = ("data", "backup", "archive", "export")
"""Where a release's answers come from: all of its data, the backup, the archive alone, or the export of one tenant."""

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

    def serve(self, folder: Path, **settings: object) -> ServiceProcess:
        """A service on the data in a folder, with these settings besides."""
        return ServiceProcess(folder, **self._settings(folder), **settings)

    def beside(self, folder: Path, redis_url: str) -> ServiceBeside:
        """A service in this process, whose clock goes right, on an empty store and the archive in a folder."""
        archive = f"sqlite://{folder / DATA / FOLDER}"
        return ServiceBeside(folder / DATA, redis_url, archive_url=archive, **self._settings(folder))

    def _settings(self, folder: Path) -> dict[str, Any]:
        (servers := folder / "mcp.toml").write_text(self.manifest["mcp_servers"])
        return {**self.manifest["settings"], "mcp_servers": str(servers)}

    def command(self, folder: Path, *arguments: str | Path) -> Done:
        """A command of an operator, on the data in a folder."""
        return command(folder, self.manifest["settings"], *arguments)

    def here(self, folder: Path, *arguments: str | Path) -> Result:
        """A command of an operator on the data in a folder, in this process, whose own clock goes right."""
        environment = environment_of(folder, self.manifest["settings"]) | {"COLUMNS": "200"}
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
    return subprocess.run(
        [HARMONIUM, *arguments], env=known, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )


def answer_of(service: Served, key: str, path: str) -> Json:
    """The answer to a GET, without what changes when somebody reads: its status, and its JSON, lines or text."""
    found = service.http(key).get(path)
    try:
        said: Json = found.json()
    except ValueError:
        said = [json.loads(line) for line in found.text.splitlines()] if found.text.startswith("{") else found.text
    return {"status": found.status_code, "answer": steady(said)}


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
