"""An object store whose answers are not its own: a gateway before it speaks in its place."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from store.archive.opening import open_archive
from store.archive.port import Bounds
from store.errors import ArchiveUnavailable
from tests.support.archive.servers import access

GATEWAY = b"<html><head><title>404 Not Found</title></head></html>"
NO_KEY = b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"


@pytest.fixture
async def says(monkeypatch: pytest.MonkeyPatch, body: bytes) -> AsyncIterator[None]:
    """An S3 that says this with 404, whatever it is asked."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=404, body=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for name, value in access(runner.addresses[0][1]).items():
        monkeypatch.setenv(name, value)
    yield
    await runner.cleanup()


@pytest.mark.usefixtures("says")
@pytest.mark.parametrize("body", [GATEWAY, b"", NO_KEY])
async def test_a_value_is_missing_only_where_the_store_itself_says_so(body: bytes) -> None:
    archive = open_archive("s3://archive/here", Path("/nowhere"), Bounds(total_seconds=5.0))
    try:
        if body == NO_KEY:
            assert await archive.get("v1/00/hold/t.acme") is None
            return
        with pytest.raises(ArchiveUnavailable, match="404"):
            await archive.get("v1/00/hold/t.acme")
        with pytest.raises(ArchiveUnavailable, match="404"):
            await archive.delete("v1/00/hold/t.acme")
    finally:
        await archive.close()
