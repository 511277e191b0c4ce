"""An object store whose answers are not its own: a gateway before it speaks in its place."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from store.archive.archive import Archive
from store.archive.objects import ObjectsBackend
from store.archive.port import Bounds
from store.errors import ArchiveUnavailable
from tests.support.archive.servers import access
from tests.support.serving import stop

GATEWAY = b"<html><head><title>404 Not Found</title></head></html>"
NO_KEY = b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"

BOUNDS = Bounds(total_seconds=5.0)


@asynccontextmanager
async def answering(status: int, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[int]:
    """The port of a server that says this, whatever it is asked."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await stop(runner)


@pytest.fixture
async def says(monkeypatch: pytest.MonkeyPatch, body: bytes) -> AsyncIterator[None]:
    """An S3 that says this with 404, whatever it is asked."""
    async with answering(404, body, {}) as port:
        for name, value in access(port).items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.usefixtures("says")
@pytest.mark.parametrize("body", [GATEWAY, b"", NO_KEY])
async def test_a_value_is_missing_only_where_the_store_itself_says_so(body: bytes) -> None:
    archive = Archive(ObjectsBackend("s3", "archive", "here", BOUNDS))
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


BLOB_IS_GONE = (
    b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n"
    b"HTTP/1.1 404 The specified blob does not exist.\r\nx-ms-error-code: BlobNotFound\r\n\r\n\r\n--b--\r\n"
)


@pytest.mark.parametrize(("status", "body"), [(404, GATEWAY), (404, b""), (202, BLOB_IS_GONE)])
async def test_at_azure_a_value_is_gone_only_where_its_part_of_a_batch_says_so(
    monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    """obstore deletes there by batches alone, whose answer has one part for each value."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acme")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    kind = {"content-type": "multipart/mixed; boundary=b" if status == 202 else "text/html"}
    async with answering(status, body, kind) as port:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}")
        archive = Archive(ObjectsBackend("az", "archive", "here", BOUNDS))
        try:
            if status == 202:
                await archive.delete("v1/00/hold/t.acme")
                return
            with pytest.raises(ArchiveUnavailable, match="404"):
                await archive.delete("v1/00/hold/t.acme")
        finally:
            await archive.close()
