"""Archives of each kind for tests, each with nothing in it, and what opens them again elsewhere."""

import os
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.archive.port import Bounds
from tests.support.archive import servers
from tests.support.archive.patience import PATIENT
from tests.support.archive.servers import Environment

REMOTE = ("s3", "postgres")
"""Those with a server, and a link to it."""

KINDS = ("sqlite", *REMOTE)


@dataclass(frozen=True)
class Place:
    """Where an archive is: its URL, and what the provider's variables have to say."""

    kind: str
    url: str
    port: int = 0
    environment: Environment = field(default_factory=dict[str, str])

    def through(self, port: int) -> "Place":
        """The same place, by a link that listens there."""
        environment = {name: value.replace(f":{self.port}", f":{port}") for name, value in self.environment.items()}
        return replace(self, url=self.url.replace(f":{self.port}/", f":{port}/"), port=port, environment=environment)

    def apart(self, name: str) -> "Place":
        """A place with nothing in it beside this one; of a Postgres, which has one table, it is the same."""
        if self.kind == "postgres":
            return self
        return replace(self, url=f"{self.url}/{name}")


def open_at(place: Place, bounds: Bounds = PATIENT) -> Archive:
    """The archive at a place; the environment of this process says what the place's does from now on."""
    os.environ.update(place.environment)
    return open_archive(place.url, Path("/nowhere"), bounds)


@asynccontextmanager
async def opened(place: Place, bounds: Bounds = PATIENT) -> AsyncGenerator[Archive]:
    """The archive at a place, closed with the block."""
    archive = open_at(place, bounds)
    try:
        yield archive
    finally:
        await archive.close()


@contextmanager
def place_of(kind: str, folder: Path) -> Iterator[Place]:
    """A place of a kind, with a server that ends with the block. Tests may share it: they take a place apart."""
    match kind:
        case "s3":
            with servers.s3() as port:
                yield Place(kind, f"s3://{servers.BUCKET}", port, servers.access(port))
        case "postgres":
            programs = servers.postgres_programs()
            if programs is None:
                pytest.skip("no Postgres is installed; CI installs Debian's")
            with servers.postgres(programs) as port:
                yield Place(kind, servers.database(port), port)
        case _:
            yield Place(kind, f"sqlite://{folder}")


async def emptied(archive: Archive) -> None:
    """Delete all that is in an archive."""
    while found := await archive.list(""):
        await archive.delete(*(entry.key for entry in found))


def new_name() -> str:
    """A name that nothing else has."""
    return uuid.uuid4().hex
