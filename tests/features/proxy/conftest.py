"""The service before a stand-in for a vLLM server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest

from service.process import Settings
from tests.support.engine.connected import scripted
from tests.support.engine.standin import Standin, standing_in
from tests.support.service.inside import Inside, serving

ENGINE_KEY = "sk-engine-0123456789"


@dataclass(frozen=True)
class Behind:
    """The service, and the server behind it."""

    inside: Inside
    server: Standin


class HasUrl(Protocol):
    """A server."""

    @property
    def url(self) -> str: ...


def before(settings: Settings, server: HasUrl, **more: object) -> Settings:
    """The settings of a service before a stand-in."""
    key = type(settings.engine_api_key)(ENGINE_KEY)
    update = {"engine": "vllm", "engine_url": (server.url,), "engine_api_key": key, **more}
    return settings.model_copy(update=update)


@asynccontextmanager
async def standing_before(settings: Settings, **more: object) -> AsyncIterator[Behind]:
    """A stand-in, and a service before it, until the end of the block."""
    async with (
        standing_in(scripted(), api_key=ENGINE_KEY) as server,
        serving(before(settings, server, **more)) as inside,
    ):
        yield Behind(inside, server)


@pytest.fixture
async def behind(settings: Settings) -> AsyncIterator[Behind]:
    async with standing_before(settings, model_aliases=("gpt-4o",)) as behind:
        yield behind
