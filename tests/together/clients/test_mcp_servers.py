"""MCP servers of others, as an operator sets them up: programs, and one over HTTP. Their tools are listed, shown and
called, and what they say of all kinds comes back through the API.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.harmony import tokens
from service.process import Settings
from tests.support.clients.clients import PACKAGES, PYTHON, node
from tests.support.ports import free_port
from tests.support.service.inside import answer, called, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.seen import prompts
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

START_SECONDS = 30.0


def script(package: str) -> str:
    """The program of a package of npm."""
    return str(PACKAGES / "@modelcontextprotocol" / package / "dist" / "index.js")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of server-everything over HTTP."""
    port = free_port()
    environment = os.environ | {"PORT": str(port)}
    command = [str(node()), script("server-everything"), "streamableHttp"]
    with (tmp_path_factory.mktemp("everything") / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).status_code,
            START_SECONDS,
            "server-everything doesn't answer",
            passing=httpx.TransportError,
        )
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def operated(settings: Settings, everything: str, tmp_path: Path) -> Settings:
    """Settings of a service with all these servers."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "tide.txt").write_text("High at 10:04.")
    commands = {
        "everything": [str(node()), script("server-everything"), "stdio"],
        "files": [str(node()), script("server-filesystem"), str(folder)],
        "memory": [str(node()), script("server-memory")],
        "time": [str(PYTHON.parent / "mcp-server-time")],
    }
    text = f'[remote]\nrequire_approval = "never"\nurl = "{everything}"\n'
    for label, command in commands.items():
        text += f'[{label}]\nrequire_approval = "never"\ncommand = {json.dumps(command)}\n'
    text += f"[memory.env]\nMEMORY_FILE_PATH = {json.dumps(str(tmp_path / 'memory.json'))}\n"
    path = tmp_path / "mcp.toml"
    path.write_text(text)
    return settings.model_copy(update={"mcp_servers": str(path)})


def call(label: str, name: str, arguments: Any) -> list[int]:
    """A whole call of a server's tool."""
    head = tokens.encode(f" to=functions.{name}")
    return [*tokens.encode(f" to={label}.{name}"), *called(name, json.dumps(arguments))[len(head) :]]


@pytest.mark.parametrize(
    ("label", "name", "arguments", "status", "said"),
    [
        ("remote", "echo", {"message": "sea"}, "completed", "Echo: sea"),
        ("everything", "get-sum", {"a": 2, "b": 40}, "completed", "42"),
        ("everything", "get-tiny-image", {}, "completed", "[image/png, "),
        ("remote", "get-structured-content", {"location": "New York"}, "completed", "temperature"),
        ("everything", "get-resource-links", {"count": 2}, "completed", "](demo://"),
        ("files", "read_text_file", {"path": "tide.txt"}, "completed", "High at 10:04."),
        ("files", "read_text_file", {"path": "/etc/passwd"}, "failed", "Access denied"),
        ("memory", "read_graph", {}, "completed", "entities"),
        ("time", "get_current_time", {"timezone": "Europe/Paris"}, "completed", "Europe/Paris"),
        ("time", "get_current_time", {"timezone": "Europe/Nowhere"}, "failed", "Nowhere"),
    ],
)
async def test_their_tools_are_listed_and_shown_and_what_they_say_comes_back(
    operated: Settings, tmp_path: Path, label: str, name: str, arguments: Any, status: str, said: str
) -> None:
    if label == "files" and not arguments["path"].startswith("/"):
        arguments = {"path": str(tmp_path / "files" / arguments["path"])}
    engine = scripted([call(label, name, arguments)], [answer("So.")])
    tool: Any = {"type": "mcp", "server_label": label}
    async with serving(operated, engine) as inside, inside.client() as client:
        response = await client.responses.create(model=MODEL, input="Go.", tools=[tool])

    listed, item = response.output[0], response.output[1].to_dict()
    assert listed.type == "mcp_list_tools"
    assert name in {each.name for each in listed.tools}
    assert f"type {name} = " in prompts(engine)[0]
    assert (item["type"], item["name"], item["status"]) == ("mcp_call", name, status), item
    assert said in str(item["output"] if status == "completed" else item["error"])
    assert said in prompts(engine)[-1]
