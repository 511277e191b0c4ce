"""Catalogues of each kind for tests, and rows to put into them."""

from pathlib import Path

from store.catalogue.catalogue import Catalogue
from store.catalogue.postgres import PostgresCatalogue
from store.catalogue.rows import CatalogueRow
from store.catalogue.sqlite import SqliteCatalogue
from store.history.elsewhere import KeptQuery
from tests.support.archive.opened import Place, new_name
from tests.support.archive.patience import PATIENT
from tests.support.store.sample import TENANT

KINDS = ("sqlite", "postgres")
FILE = "catalogue.db"


def catalogue_at(place: Place) -> Catalogue:
    """The catalogue at a place."""
    if place.kind == "postgres":
        return Catalogue(PostgresCatalogue(place.url, PATIENT))
    return Catalogue(SqliteCatalogue(Path(place.url.removeprefix("sqlite://")) / FILE, PATIENT.request_seconds))


def row_of(words: str = "", *facts: str, used: int = 1) -> CatalogueRow:
    """A row that is found by these words and facts."""
    return CatalogueRow(used, "00root", "00newest", words.encode(), facts, words)


async def put(catalogue: Catalogue, tree: str, row: CatalogueRow | None, only_if: str, tenant: str = TENANT) -> bool:
    """Put a row with a version that no other has had."""
    return await catalogue.put(tenant, tree, row, new_name(), only_if)


async def emptied(catalogue: Catalogue) -> Catalogue:
    """A catalogue without the rows that it has."""
    while rows := await catalogue.versions("", "~", 1_000):
        for place, version in rows:
            shard, tenant, tree = place.split("/")
            await catalogue.put(tenant.removeprefix("t."), shard + tree, None, "", version)
    return catalogue


async def found(
    catalogue: Catalogue, *words: str, tenant: str = TENANT, limit: int = 100, **query: object
) -> list[str]:
    """The trees that are listed, or found by some words."""
    asked = KeptQuery(limit, words=words)._replace(**query)
    return [each.tree for each in await catalogue.find(tenant, asked)]
