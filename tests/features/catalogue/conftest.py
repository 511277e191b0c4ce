"""A catalogue of each kind, with nothing in it, and the place where it is; and a store with an archive that has one."""

from collections.abc import AsyncIterator, Iterator

import pytest

from store.catalogue.catalogue import Catalogue
from tests.support.archive.catalogues import KINDS, catalogue_at, emptied
from tests.support.archive.opened import Place, new_name, place_of
from tests.support.store.fixtures import *


@pytest.fixture(scope="session", params=KINDS)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Where catalogues of a kind are, for all tests of a run."""
    with place_of(request.param, tmp_path_factory.mktemp(request.param)) as place:
        yield place


@pytest.fixture
def place(ground: Place) -> Place:
    return ground.apart(new_name())


@pytest.fixture
async def catalogue(place: Place) -> AsyncIterator[Catalogue]:
    """A catalogue with nothing in it."""
    made = await emptied(catalogue_at(place))
    yield made
    await made.close()
