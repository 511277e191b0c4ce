"""Fixtures that tests elsewhere have, too, and files over Redis alone and over an archive."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from store.archive.archive import Archive
from store.files.files import Files
from store.history.history import ConversationHistoryStore
from tests.support.archive.opened import emptied, new_name, opened, place_of
from tests.support.store.fixtures import *

LONG = pytest.mark.full


async def opened_in(kind: str, folder: Path) -> AsyncIterator[Archive]:
    with place_of(kind, folder) as place:
        async with opened(place.apart(new_name())) as made:
            yield made
            await emptied(made)


@pytest.fixture
def _environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that a place sets are gone after the test."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "")


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    """An archive with nothing in it."""
    async for made in opened_in("sqlite", tmp_path):
        yield made


@pytest.fixture(params=["redis", "sqlite", pytest.param("s3", marks=LONG), pytest.param("postgres", marks=LONG)])
async def files(
    request: pytest.FixtureRequest, history: ConversationHistoryStore, tmp_path: Path, _environment_of_its_own: None
) -> AsyncIterator[Files]:
    """Files in a store of its own: in Redis, and in archives."""
    if request.param == "redis":
        yield Files(history)
        return
    async for made in opened_in(request.param, tmp_path):
        yield Files(history, made)
