"""A vLLM server on this machine beside the demo engine, which then answers by its own name alone."""

import asyncio
import sys
from pathlib import Path

import httpx
import pytest

from service.commands.serve import vllm_beside
from service.process import load_settings
from tests.support.engine.connected import scripted
from tests.support.engine.standin import standing_in
from tests.support.ports import free_port
from tests.support.service.process import MODEL
from tests.support.service.terminal import at_a_terminal

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


async def test_beside_a_vllm_server_the_demo_engine_has_no_name_of_a_model(tmp_path: Path) -> None:
    command, port = tmp_path / "harmonium.py", free_port()
    settings = {"port": port, "data_dir": tmp_path / "data", "model_aliases": "demo-a,gpt-4o", "log_format": "json"}
    url = f"http://127.0.0.1:{port}/v1"
    async with standing_in(scripted(), version="0.32.0") as vllm, httpx.AsyncClient(trust_env=False) as http:
        command.write_text(HARMONIUM.format(url=vllm.url))
        with at_a_terminal(tmp_path, "serve", program=(sys.executable, str(command)), **settings) as terminal:
            await asyncio.to_thread(terminal.shows, "ready")
            models = [each["id"] for each in (await http.get(f"{url}/models")).json()["data"]]
            refused = await http.post(f"{url}/responses", json={"model": MODEL, "input": "Hi"})
    assert (models, refused.status_code) == (["demo", "demo-a"], 404)
    assert "but the demo engine answers" in terminal.text
    assert vllm.url in terminal.text
    assert {each.path for each in vllm.asked} == {"/version"}


async def test_nobody_is_looked_for_where_an_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing_in(scripted(), version="0.32.0") as vllm:
        monkeypatch.setattr("service.commands.serve.BESIDE", vllm.url)
        monkeypatch.setattr("service.commands.serve.LOOK_SECONDS", 60)
        for given in ({"engine": "demo"}, {"model": "demo-a"}, {"engine_url": vllm.url}):
            assert await asyncio.to_thread(vllm_beside, load_settings(**given)) == ""
        assert vllm.asked == []
        assert await asyncio.to_thread(vllm_beside, load_settings()) == vllm.url
