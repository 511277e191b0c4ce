"""One store for all rows of a table of deaths."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.storm import STEADY


@pytest.fixture
def part(tmp_path: Path) -> Iterator[Callable[..., Settings]]:
    """Makes settings over one store, with an empty part of it for each prefix."""
    with EmbeddedServer(tmp_path / "store") as server:

        def make(prefix: str, **more: object) -> Settings:
            common = STEADY | {"demo_tokens_per_second": 400}
            return load_settings(redis_url=server.url, key_prefix=prefix, **(common | more))

        yield make
