"""The things that tests of webhooks share: a desk with a store of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.support.webhooks.desk import Desk, opened


@pytest.fixture
async def desk(redis_url: str) -> AsyncIterator[Desk]:
    async with opened(redis_url) as desk:
        yield desk
