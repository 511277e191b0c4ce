"""A service whose model speaks by a chat template: a test's own `speaker`."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from service.settings.settings import Settings
from tests.support.markup.speaker import Speaker
from tests.support.service.inside import Inside, serving


@pytest.fixture
async def service(settings: Settings, speaker: Speaker) -> AsyncIterator[Inside]:
    async with serving(settings, speaker) as service:
        yield service


@pytest.fixture
async def client(service: Inside) -> AsyncIterator[AsyncOpenAI]:
    """The official client of it."""
    async with service.client() as client:
        yield client
