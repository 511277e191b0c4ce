"""A service whose model speaks by a chat template: a test's own `speaker`."""

from collections.abc import AsyncIterator
from inspect import iscoroutinefunction

import pytest
from openai import AsyncOpenAI

from service.process import Settings
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests with a service are of the long form where another markup's calls have the same form."""
    for item in items:
        if getattr(getattr(item, "cls", None), "served_like", "") and iscoroutinefunction(
            getattr(item, "function", None)
        ):
            item.add_marker(pytest.mark.full)
