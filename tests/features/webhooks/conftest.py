"""The things that tests of webhooks share: a desk with a store of its own."""

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.support.store.fixtures import *
from tests.support.webhooks.desk import Desk


@pytest.fixture
async def desk(redis_url: str) -> AsyncIterator[Desk]:
    desk = Desk(redis_url, f"test-{uuid.uuid4().hex}")
    yield desk
    await desk.close()
