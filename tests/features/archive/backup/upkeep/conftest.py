"""A store with an archive in SQLite, or at what speaks S3."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.archive.kept import Kept, kept
from tests.support.archive.opened import Place, new_name, opened, place_of


@pytest.fixture(scope="module", params=["sqlite", pytest.param("s3", marks=pytest.mark.full)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_of(request.param, tmp_path_factory.mktemp("archives")) as made:
        yield made


@pytest.fixture
async def both(server_url: str, prefix: str, place: Place) -> AsyncIterator[Kept]:
    async with opened(place.apart(new_name())) as archive, kept(server_url, prefix, archive) as made:
        yield made
