"""compose.yaml in a real Docker: built, started, restarted, killed, scaled and replaced, with its own doctor content.

All tests share one stack, and leave it running. They need root and Debian: `scripts/test --docker`.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.deploy.docker import COMMIT, Docker, Stack, running_docker
from tests.support.oracles.event_grammar import check_stream
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

MOST_BYTES = 440_000_000
"""For the image, that of Python included: 28 MB of it are the archive's obstore and asyncpg."""

MODEL = "demo"
COUNT = 100
JOBS = 6
JOBS_SECONDS = 90.0
BEGUN_EVENTS = 30
"""Events after which a response is well under way, and far from its end."""


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    with running_docker(tmp_path_factory.mktemp("docker")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def stack(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(docker, tmp_path_factory.mktemp("stack"))
    yield stack
    stack.close()


def submitted(client: openai.OpenAI) -> list[str]:
    """Background responses, all of which are well under way."""
    with ExitStack() as following:
        streams = [
            following.enter_context(
                client.responses.create(model=MODEL, input=f"Count to {COUNT}.", background=True, stream=True)
            )
            for _ in range(JOBS)
        ]
        return [begun(stream) for stream in streams]


def begun(stream: openai.Stream[Any]) -> str:
    """The id of a response, once it has so many events that it is well under way."""
    first = next(stream)
    assert next(event for event in stream if event.sequence_number == BEGUN_EVENTS)
    return first.response.id


def check_ended(client: openai.OpenAI, ids: Sequence[str]) -> None:
    """Each response ends, completely and once, and its events are whole."""
    for id in ids:
        wait_until(
            lambda id=id: client.responses.retrieve(id).status not in ("queued", "in_progress"),
            JOBS_SECONDS,
            passing=openai.APIError,
        )
        events = [event.to_dict() for event in client.responses.retrieve(id, stream=True)]
        response = check_stream(events)
        assert response["status"] == "completed"
        assert client.responses.retrieve(id).output_text.split() == [str(n) for n in range(1, COUNT + 1)]


def remembers(client: openai.OpenAI, id: str) -> bool:
    """Whether a conversation that began with a name goes on with it."""
    answer = client.responses.create(model=MODEL, input="What is my name?", previous_response_id=id)
    return "Ada" in answer.output_text


def processes(container: str, docker: Docker) -> list[Path]:
    """The processes of a container, as the host sees them."""
    top = docker("top", container, "-eo", "pid").split()[1:]
    return [Path("/proc", pid) for pid in top]


def test_readme_s_commands_start_it_answer_and_find_nothing_to_mend(stack: Stack) -> None:
    _, answer, doctor = stack.shown
    assert json.loads(answer)["output"][-1]["content"][0]["text"] == "1\n2\n3"
    assert "0 warn, 0 unsafe" in doctor
    assert f"(commit {COMMIT[:7]}, " in stack.executed("harmonium", "harmonium", "--version")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        stack.shell("scripts/env")
    assert "stays as it is" in refused.value.stderr
    assert (stack.folder / ".env").stat().st_mode & 0o777 == 0o600


def test_the_image_is_small_belongs_to_nobody_special_and_installs_nothing(stack: Stack) -> None:
    assert stack.docker.inspect("harmonium", ".Size") < MOST_BYTES
    assert stack.docker.inspect("harmonium", ".Config.User") == "harmonium"
    assert stack.executed("harmonium", "id", "-u").strip() == "10001"
    installed = stack.executed(
        "harmonium", "sh", "-c", "ls /opt/harmonium/bin /opt/harmonium/lib/python3*/site-packages"
    )
    assert "harmonium" in installed.split()
    assert not {"pip", "setuptools", "wheel"} & set(installed.split())


@pytest.mark.parametrize("service", ["redis", "harmonium", "worker"])
def test_a_container_has_no_rights_and_can_write_nowhere_but_to_its_volumes(stack: Stack, service: str) -> None:
    stack.up("harmonium", "worker")
    state = Path("/proc", str(stack.docker.inspect(stack.containers(service)[0], ".State.Pid")), "status").read_text()
    assert "NoNewPrivs:\t1" in state
    assert "CapEff:\t0000000000000000" in state
    assert "CapPrm:\t0000000000000000" in state
    assert "\nUid:\t0\t" not in state
    for folder in ("/", "/opt/harmonium", "/home/harmonium", "/usr/bin"):
        with pytest.raises(subprocess.CalledProcessError) as refused:
            stack.executed(service, "touch", f"{folder}/mine")
        assert "ead-only" in refused.value.stderr or "No such file" in refused.value.stderr
    stack.executed(service, "sh", "-c", "touch /tmp/mine && rm /tmp/mine")


def test_the_password_is_in_no_command_line_and_redis_refuses_who_has_none(stack: Stack) -> None:
    password = stack.secrets["REDIS_PASSWORD"]
    for service in ("redis", "harmonium"):
        for process in processes(stack.containers(service)[0], stack.docker):
            assert password not in (process / "cmdline").read_text()
    asked = (
        "import socket; s = socket.create_connection(('redis', 6379), 5); s.sendall(b'PING\\r\\n'); print(s.recv(99))"
    )
    assert "NOAUTH" in stack.executed("harmonium", "python", "-c", asked)


def test_a_conversation_goes_on_after_everything_was_restarted_and_after_everything_was_removed(stack: Stack) -> None:
    client = stack.client
    first = client.responses.create(model=MODEL, input="My name is Ada.").id
    stack.compose("restart")
    stack.up("harmonium")
    assert remembers(client, first)
    stack.compose("down")
    stack.up("harmonium", "worker")
    assert remembers(client, first)


def test_api_and_workers_share_an_archive_and_get_all_of_env(stack: Stack) -> None:
    written = (stack.folder / ".env").read_text()
    (stack.folder / ".env").write_text(f"{written}HARMONIUM_ARCHIVE_AFTER_SECONDS=1\n")
    try:
        stack.up("harmonium", "worker", workers=1)
        root = stack.client.responses.create(model=MODEL, input="hi").id
        for service in ("harmonium", "worker"):
            assert "HARMONIUM_ARCHIVE_AFTER_SECONDS=1" in stack.executed(service, "harmonium", "settings")
            exported = ("harmonium", "archive", "export", "--project", "default", "--tree", root)
            wait_until(lambda exported=exported, service=service: root in stack.executed(service, *exported))
            assert json.loads(stack.executed(service, "harmonium", "archive", "status", "--json"))
    finally:
        (stack.folder / ".env").write_text(written)
        stack.up("harmonium", "worker")


@pytest.mark.parametrize("service", ["worker", "harmonium", "redis"])
def test_background_responses_end_once_whichever_container_is_killed(stack: Stack, service: str) -> None:
    stack.up("harmonium", "worker")
    client = stack.client
    ids = submitted(client)
    for container in stack.containers(service):
        stack.kill(container)
    check_ended(client, ids)


def test_another_release_replaces_every_container_and_nothing_that_was_begun_is_lost(stack: Stack) -> None:
    stack.up("harmonium", "worker", workers=2)
    client = stack.client
    first = client.responses.create(model=MODEL, input="My name is Ada.").id
    ids = submitted(client)
    before = {each for name in ("harmonium", "worker") for each in stack.containers(name)}
    stack.compose("build", COMMIT="fedcba9")
    stack.up("harmonium", "worker", workers=2)
    after = {each for name in ("harmonium", "worker") for each in stack.containers(name)}
    assert not before & after
    assert "fedcba9" in stack.executed("harmonium", "harmonium", "--version")
    check_ended(client, ids)
    assert remembers(client, first)


def test_prometheus_finds_every_container_and_may_read_its_metrics(stack: Stack) -> None:
    stack.up("harmonium", "worker", workers=2)
    stack.compose("up", "--detach", "prometheus")

    def targets() -> list[dict[str, Any]]:
        answer = httpx.get(f"http://127.0.0.1:{stack.prometheus_port}/api/v1/targets", trust_env=False).json()
        return answer["data"]["activeTargets"]

    wait_until(
        targets,
        90,
        wanted=lambda found: [each["health"] for each in found] == ["up"] * 3,
        passing=(httpx.HTTPError, ValueError),  # it says in words that it isn't ready
    )
    rules = httpx.get(f"http://127.0.0.1:{stack.prometheus_port}/api/v1/rules", trust_env=False).json()
    assert rules["data"]["groups"][0]["name"] == "harmonium"
    stack.compose("rm", "--stop", "--force", "prometheus")


def test_at_the_end_the_store_is_whole(stack: Stack) -> None:
    stack.up("harmonium")
    report = json.loads(stack.executed("harmonium", "harmonium", "fsck", "--json"))  # it fails where a fault is found
    assert report["turns"] > 3 * JOBS
