"""What only the adapter over HTTP can get wrong: its requests don't wait for each other."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from service.sandbox.port import Full, Unusable
from service.sandbox.remote import RemoteSandbox
from service.sandbox.session import MAX_WAITING
from tests.support.sandbox.sandboxes import MOST, TENANT, SandboxProcess, folder_for_all, parts

LOOP = "import time\nwhile True: time.sleep(0.01)"
ROUND_TRIPS = 20


async def test_what_was_cancelled_makes_room_before_the_next_cell_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_for_all() as base:
        process = SandboxProcess(base / "process", base)
        sandbox = RemoteSandbox(process.listen)
        stop = sandbox.stop

        async def late(session: str, call: str) -> None:
            for _ in range(ROUND_TRIPS):
                await sandbox.files(session)
            await stop(session, call)

        monkeypatch.setattr(sandbox, "stop", late)
        try:
            await sandbox.open("one", TENANT, MOST)
            waiting = [asyncio.create_task(sandbox.run("one", f"w{n}", LOOP)) for n in range(MAX_WAITING + 2)]
            refused, kept = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [type(task.exception()) for task in refused] == [Full]
            for task in kept:
                task.cancel()
            await asyncio.wait(kept)
            assert (await sandbox.run("one", "next", "'free'")).logs == "'free'\n"
        finally:
            await sandbox.aclose()
            process.stop()


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize(
    "body", [b"<html>", b'"\xff"', b'{"x":' + b"[" * 100_000, b""], ids=["html", "bytes", "deep", "none"]
)
async def test_what_answers_and_is_no_sandbox_is_unusable(status: int, body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, status=status)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application) as server:
        sandbox = RemoteSandbox(str(server.make_url("")))
        try:
            if status == 404:
                with pytest.raises(Unusable):
                    await sandbox.start()
            for action in (
                lambda: sandbox.open("one", TENANT, MOST),
                lambda: sandbox.run("one", "call", "1"),
                lambda: sandbox.files("one"),
                lambda: sandbox.write("one", "x", parts(b"x")),
            ):
                with pytest.raises(Unusable, match=r"what answers at .* is no sandbox"):
                    await action()
        finally:
            await sandbox.aclose()
