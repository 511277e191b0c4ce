"""The image of the sandbox in a real Docker: sessions are confined in a default container and in that of compose.yaml,
and the service beside it has them over the socket. They need root and Debian: `scripts/test --docker --full`.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.deploy.docker import BUILD_SECONDS, Docker, Stack, running_docker

pytestmark = [pytest.mark.docker, pytest.mark.full, pytest.mark.timeout(900)]

IMAGE = "harmonium-sandbox"
SOCKET = "unix:///run/harmonium/sandbox.sock"
SANDBOX = ("workers", "sandbox")

CONFINED = ("--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")
NO_MORE = ("--security-opt", "no-new-privileges", "--pids-limit", "1024", "--memory", "4g")

TRIED = """
import asyncio
from service.features.sandbox.local import LocalSandbox, SessionPlaces
from service.features.sandbox.port import SessionLimits

CODE = '''
import os, numpy, pandas, matplotlib.pyplot
open('x', 'w').write('42')
os.getuid(), open('/mnt/data/x').read()
'''

async def main():
    sandbox = LocalSandbox(SessionPlaces(), SessionLimits())
    await sandbox.start()
    print((await sandbox.open("one", "ada", SessionLimits())).folder)
    cell = await sandbox.run("one", "call", CODE)
    print(cell.ended, cell.logs, end="")
    await sandbox.aclose()

asyncio.run(main())
"""
"""Starts a sandbox, which proves that it is confined, and runs a cell."""


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    with running_docker(tmp_path_factory.mktemp("docker")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def image(docker: Docker) -> str:
    build = ("build", "--network", "host", "--target", "sandbox", "--tag", IMAGE, str(ROOT))
    docker(*build, seconds=2 * BUILD_SECONDS)
    return IMAGE


@pytest.mark.parametrize(
    ("options", "user"),
    [(("--user", "root"), 64_002), ((), 10_001), ((*CONFINED, *NO_MORE), 10_001)],
    ids=["root", "a user", "confined"],
)
def test_a_session_is_confined_in_a_container(docker: Docker, image: str, options: tuple[str, ...], user: int) -> None:
    shown = docker("run", "--rm", "--interactive", *options, "--entrypoint", "python", image, "-", told=TRIED)
    assert shown == f"/mnt/data\nok ({user}, '42')\n"


@pytest.fixture(scope="module")
def stack(docker: Docker, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(docker, tmp_path_factory.mktemp("stack"))
    with (stack.folder / ".env").open("a") as env:
        env.write(f"HARMONIUM_SANDBOX={SOCKET}\n")
    stack.compose("up", "--detach", "--wait", "sandbox", "harmonium", profiles=SANDBOX)
    yield stack
    stack.close()


def test_the_service_has_python_in_the_container_beside_it(stack: Stack) -> None:
    tool: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
    asked = "Use python: import os, pandas; print(pandas.Series(range(10)).sum(), os.getuid())"
    response = stack.client.responses.create(
        model="demo", input=asked, tools=[tool], include=["code_interpreter_call.outputs"]
    )
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    assert call.status == "completed"
    assert [output.logs for output in call.outputs or () if output.type == "logs"] == ["45 10001\n"]
