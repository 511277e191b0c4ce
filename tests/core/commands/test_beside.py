"""A vLLM server on this machine beside the demo engine, which then answers by its own name alone."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service.commands.serve import vllm_beside
from service.process import load_settings
from tests.support.engine.connected import scripted
from tests.support.engine.standin import standing_in
from tests.support.service.process import MODEL, CoreProcess, ServiceProcess

HARMONIUM = """
import sys
from service import process
from tests.support.service.alone import features
process.features = features
from service.commands import command_line, serve

if __name__ == "__main__":
    serve.BESIDE, serve.LOOK_SECONDS = {url!r}, 60
    sys.exit(command_line.app())
"""


async def test_beside_a_vllm_server_the_demo_engine_has_no_name_of_a_model(
    tmp_path: Path, start: Callable[..., ServiceProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "harmonium.py"
    monkeypatch.setattr(CoreProcess, "program", (sys.executable, str(command)))
    async with standing_in(scripted(), version="0.32.0") as vllm:
        command.write_text(HARMONIUM.format(url=vllm.url))
        service = await asyncio.to_thread(start, model_aliases="demo-a,gpt-4o")
        models = [each["id"] for each in service.http().get("/v1/models").json()["data"]]
        refused = service.http().post("/v1/responses", json={"model": MODEL, "input": "Hi"})
    assert (models, refused.status_code) == (["demo", "demo-a"], 404)
    assert "but the demo engine answers" in service.log
    assert f"url={vllm.url}" in service.log
    assert {each.path for each in vllm.asked} == {"/version"}


async def test_nobody_is_looked_for_where_an_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing_in(scripted(), version="0.32.0") as vllm:
        monkeypatch.setattr("service.commands.serve.BESIDE", vllm.url)
        monkeypatch.setattr("service.commands.serve.LOOK_SECONDS", 60)
        for given in ({"engine": "demo"}, {"model": "demo-a"}, {"engine_url": vllm.url}):
            assert await asyncio.to_thread(vllm_beside, load_settings(**given)) == ""
        assert vllm.asked == []
        assert await asyncio.to_thread(vllm_beside, load_settings()) == vllm.url
