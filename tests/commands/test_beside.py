"""A vLLM server on this machine beside the demo engine, which then answers by its own name alone."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from aiohttp import web

from service.commands.serve import BESIDE, LOOK_SECONDS, MAX_ANSWER_BYTES, vllm_beside
from service.settings.core import is_loopback
from service.settings.settings import load_settings
from tests.support.engine.connected import scripted
from tests.support.engine.standin import standing_in
from tests.support.ports import free_port
from tests.support.service.process import MODEL, ServiceProcess

HARMONIUM = """#!{python}
import sys
from service.commands import command_line, serve

if __name__ == "__main__":
    serve.BESIDE = {url!r}
    sys.exit(command_line.app())
"""

LONG = b'{"version": "0.32.0", "more": "' + b"a" * MAX_ANSWER_BYTES + b'"}'


@pytest.mark.parametrize("workers", [1, 2])
async def test_beside_a_vllm_server_the_demo_engine_has_no_name_of_a_model(
    tmp_path: Path, start: Callable[..., ServiceProcess], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    command = tmp_path / "harmonium"
    monkeypatch.setattr("tests.support.service.process.HARMONIUM", command)
    async with standing_in(scripted(), version="0.32.0") as vllm:
        command.write_text(HARMONIUM.format(python=sys.executable, url=vllm.url))
        command.chmod(0o755)
        service = await asyncio.to_thread(start, workers=workers, model_aliases="demo-a,gpt-4o")
        models = [each["id"] for each in service.http().get("/v1/models").json()["data"]]
        refused = service.http().post("/v1/responses", json={"model": MODEL, "input": "Hi"})
    assert (models, refused.status_code) == (["demo", "demo-a"], 404)
    assert "the demo engine answers by its own name alone" in service.log
    assert f"url={vllm.url}" in service.log
    assert {each.path for each in vllm.asked} == {"/version"}


async def test_nobody_is_looked_for_where_an_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing_in(scripted(), version="0.32.0") as vllm:
        monkeypatch.setattr("service.commands.serve.BESIDE", vllm.url)
        for given in ({"engine": "demo"}, {"model": "demo-a"}, {"engine_url": vllm.url}):
            assert await asyncio.to_thread(vllm_beside, load_settings(**given)) == ""
        assert vllm.asked == []
        assert await asyncio.to_thread(vllm_beside, load_settings()) == vllm.url


def test_a_look_stays_on_this_machine_whatever_proxy_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_loopback(BESIDE.removeprefix("http://").partition(":")[0])
    monkeypatch.setattr("service.commands.serve.BESIDE", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")  # nobody answers there
    monkeypatch.setattr("service.commands.serve.LOOK_SECONDS", 60)
    begun = monotonic()
    assert vllm_beside(load_settings()) == ""
    assert monotonic() - begun < 30


@pytest.mark.parametrize(
    "said",
    [b'{"version": "1.2", "gitVersion": 1', b'{"major": "1"}', b"<html>", LONG, None],
    ids=lambda said: len(said or b""),
)
async def test_other_servers_are_no_vllm_and_are_not_waited_for(
    said: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: web.Request) -> web.Response:
        if said is None:
            await asyncio.Event().wait()
        return web.Response(body=said, content_type="application/json")

    other = web.Application()
    other.router.add_get("/version", answer)
    runner = web.AppRunner(other, shutdown_timeout=0.01)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    monkeypatch.setattr("service.commands.serve.BESIDE", f"http://127.0.0.1:{port}")
    begun = monotonic()
    try:
        assert await asyncio.to_thread(vllm_beside, load_settings()) == ""
        assert monotonic() - begun < LOOK_SECONDS + 20
    finally:
        await runner.cleanup()
