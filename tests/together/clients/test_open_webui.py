"""Open WebUI, unchanged, in Chromium: over the Responses API a chat of two turns, its title, and the reasoning in its
fold; over Chat Completions a chat with a message edited and an answer made anew, which is one tree."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    "ENABLE_OLLAMA_API": "False",
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "unused",
    "TITLE_GENERATION_PROMPT_TEMPLATE": TITLED,
    "ENABLE_FORWARD_USER_INFO_HEADERS": "True",
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


@contextmanager
def opened(service: ServiceProcess, folder: Path, **connection: str) -> Iterator[str]:
    """The address of an Open WebUI whose only connection is the service."""
    assert ENVIRONMENT.exists(), "run scripts/setup open-webui first, or this test by scripts/test --clients --full"
    port = free_port()
    home = folder / "webui"
    home.mkdir()
    settings = {
        **SETTINGS,
        "HOME": str(home),
        "DATA_DIR": str(home),
        "OPENAI_API_BASE_URL": f"{service.url}/v1",
        "OPENAI_API_CONFIGS": json.dumps({"0": connection}),
    }
    with (folder / "log").open("wb") as log:
        command = [ENVIRONMENT / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **settings}, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(
            lambda: httpx.get(f"{url}/health", trust_env=False).is_success,
            START_SECONDS,
            "Open WebUI doesn't answer",
            passing=httpx.TransportError,
        )
        yield url
    finally:
        process.kill()
        process.wait(STOP_SECONDS)


def seen(chat: str, url: str, folder: Path) -> dict[str, Any]:
    """The things that a browser saw in a chat."""
    done = subprocess.run(
        [ENVIRONMENT / "python", BROWSER, chat, f"{url}/?models={MODEL}", folder],
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=CHAT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{folder / 'page.png'} shows it"
    return json.loads(done.stdout)


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(tmp_path / "service", **getattr(request, "param", {}))
    yield service
    service.stop()


def paths(service: ServiceProcess) -> set[str]:
    """The paths to which Open WebUI has posted, with their status."""
    asked = [line for line in service.log.splitlines() if " method=POST " in line]
    return {" ".join(word for word in line.split() if word.startswith(("path=", "status="))) for line in asked}


def test_a_chat_goes_on_has_a_title_and_folds_thoughts(service: ServiceProcess, tmp_path: Path) -> None:
    with opened(service, tmp_path, api_type="responses") as url:
        told = seen("folded", url, tmp_path)
    assert told == {"folds": 2, "folded": True, "kept": 2, "title": "Ada says hello / Open WebUI"}
    assert paths(service) == {"path=/v1/responses status=200"}


@pytest.mark.parametrize("service", [{"chats": "remember"}], indirect=True)
def test_a_chat_with_a_message_edited_and_an_answer_made_anew_is_one_tree(
    service: ServiceProcess, tmp_path: Path
) -> None:
    with opened(service, tmp_path) as url:
        assert seen("forked", url, tmp_path) == {"title": "Ada says hello / Open WebUI"}
    assert paths(service) == {"path=/v1/chat/completions status=200"}
    http = service.http()
    trees = http.get("/console/api/trees?limit=100").json()["data"]
    (tree,) = [each for each in trees if each["title"] == "My name is Ada."]
    assert {each["turns"] for each in trees if each is not tree} == {1}, "titles, tags and further questions"
    turns = http.get(f"/console/api/trees/{tree['id']}").json()["turns"]
    by_id = {turn["id"]: turn["input"] for turn in turns}
    assert sorted((turn["input"], by_id.get(turn["parent"])) for turn in turns) == [
        ("I like chess.", "What is my name?"),
        ("I like rain.", "I like tea."),
        ("I like rain.", "I like tea."),
        ("I like tea.", "What is my name?"),
        ("My name is Ada.", None),
        ("What is my name?", "My name is Ada."),
    ]
