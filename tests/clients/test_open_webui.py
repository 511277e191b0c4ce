"""Open WebUI, unchanged, in Chromium: a chat of two turns, its title, and the reasoning in its fold."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import ROOT
from tests.support.clients.clients import NOWHERE
from tests.support.ports import free_port
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

ENVIRONMENT = ROOT / ".venv-open-webui" / "bin"
BROWSER = ROOT / "tests" / "support" / "clients" / "browser.py"
START_SECONDS = 180.0
"""It imports half a gigabyte, and makes its database, before it answers."""

CHAT_SECONDS = 120
STOP_SECONDS = 20.0

TITLED = '{"title": "Ada says hello"}'
"""What it asks for a title. The demo quotes it, and Open WebUI takes the JSON out of what it says."""

SETTINGS = {
    "OPENAI_API_KEY": "none",
    "OPENAI_API_CONFIGS": json.dumps({"0": {"api_type": "responses"}}),
    "ENABLE_OLLAMA_API": "False",
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "unused",
    "TITLE_GENERATION_PROMPT_TEMPLATE": TITLED,
    # what models of its own would do, which are not installed
    "OFFLINE_MODE": "true",
    "HF_HUB_OFFLINE": "1",
    "RAG_EMBEDDING_ENGINE": "openai",
    "AUDIO_STT_ENGINE": "openai",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1",
}

pytestmark = [pytest.mark.clients, pytest.mark.full, pytest.mark.timeout(START_SECONDS + CHAT_SECONDS + 60)]


def answers(url: str) -> bool:
    """Whether it is there."""
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(tmp_path / "service")
    yield service
    service.stop()


@pytest.fixture
def webui(service: ServiceProcess, tmp_path: Path) -> Iterator[str]:
    """The address of an Open WebUI that is pointed at the service."""
    assert ENVIRONMENT.exists(), "run scripts/setup open-webui first, or this test by scripts/test --clients --full"
    port = free_port()
    folder = tmp_path / "webui"
    folder.mkdir()
    settings = {**SETTINGS, "HOME": str(folder), "DATA_DIR": str(folder), "OPENAI_API_BASE_URL": f"{service.url}/v1"}
    with (tmp_path / "log").open("wb") as log:
        command = [ENVIRONMENT / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **settings}, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url), START_SECONDS, "Open WebUI doesn't answer")
        yield url
    finally:
        process.kill()
        process.wait(STOP_SECONDS)


def test_a_chat_goes_on_has_a_title_and_folds_thoughts(service: ServiceProcess, webui: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [ENVIRONMENT / "python", BROWSER, f"{webui}/?models={MODEL}", tmp_path],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=CHAT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{tmp_path / 'page.png'} shows it"
    assert json.loads(done.stdout) == {"folds": 2, "folded": True, "kept": 2, "title": "Ada says hello / Open WebUI"}
    asked = [line for line in service.log.splitlines() if " method=POST " in line]
    assert asked
    assert all("path=/v1/responses status=200" in line for line in asked)
