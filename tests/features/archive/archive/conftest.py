"""An archive of each kind, with nothing in it, and the place where it is."""

from collections.abc import AsyncIterator, Iterator

import pytest

from store.archive.archive import Archive
from tests.support.archive.opened import KINDS, Place, emptied, new_name, opened, place_of


@pytest.fixture(autouse=True)
def _environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a place puts into the environment is gone after the test."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "")


@pytest.fixture(scope="session", params=KINDS)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Where archives of a kind are, for all tests of a run."""
    with place_of(request.param, tmp_path_factory.mktemp(request.param)) as place:
        yield place


@pytest.fixture
async def place(ground: Place) -> AsyncIterator[Place]:
    """Where there is nothing yet."""
    made = ground.apart(new_name())
    yield made
    async with opened(made) as archive:
        await emptied(archive)


@pytest.fixture
async def archive(place: Place) -> AsyncIterator[Archive]:
    """An archive with nothing in it."""
    async with opened(place) as archive:
        yield archive
