"""A Docker daemon of the tests' own, and compose.yaml in it, in a copy of the checkout.

The daemon listens on a socket in the tests' folder, and is gone with it. What stands in for images that can't be had is
said in IMAGES; compose.yaml and the Dockerfile are those of the checkout, byte for byte. Never change them here.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openai import OpenAI

from service.settings.sources import PREFIX
from tests.support import ROOT
from tests.support.documents import blocks, read
from tests.support.ports import free_port
from tests.support.waiting import wait_until

NEEDED = (
    *(
        "compose.yaml",
        "Dockerfile",
        ".dockerignore",
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "requirements",
    ),
    *("docs", "store", "service", "deploy", "scripts"),
)
"""What of the checkout the stack is made of."""

IMAGES = {
    "python:3.11.17-slim-bookworm": "",
    "redis:7.4.11-bookworm": "",
    "prom/prometheus:v3.13.4": "COPY prometheus /usr/bin/\nRUN install -d -o nobody /prometheus\nUSER nobody\n",
}
"""The images that compose.yaml and the Dockerfile name, each made of Debian's packages and of these lines."""

COMMIT = "facade0facade0"
"""The commit that git's files name there."""

COMMAND_SECONDS = 120.0
BUILD_SECONDS = 300.0
DAEMON_SECONDS = 60.0
TOKENS_PER_SECOND = 30

CLIENT_RETRIES = 8
"""For the seconds in which the one API is replaced."""


class Docker:
    """The daemon."""

    def __init__(self, folder: Path, kept: Path) -> None:
        """Starts it. `kept` is what scripts/docker-setup has made."""
        self._folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)} | {
            "DOCKER_HOST": f"unix://{folder}/docker.sock",
            "DOCKER_CONFIG": str(folder / "config"),
        }
        shutil.copytree(kept / "cli-plugins", folder / "config" / "cli-plugins")
        with (folder / "dockerd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM", "dockerd"),
                    *("--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "pid"),
                    *("--host", self.environment["DOCKER_HOST"]),
                ],
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: self("version"), DAEMON_SECONDS, passing=subprocess.CalledProcessError)
        for image, lines in IMAGES.items():
            self("import", str(kept / "base.tar"), image)
            if lines:
                context = folder / "context"
                context.mkdir()
                (context / "Dockerfile").write_text(f"FROM {image}\n{lines}")
                shutil.copy(kept / "prometheus", context)
                self("build", "--tag", image, str(context))

    def __call__(self, *command: str, seconds: float = COMMAND_SECONDS, told: str = "") -> str:
        """What a command of Docker prints, which reads what it is `told`. Raises CalledProcessError."""
        return ran(["docker", *command], self.environment, seconds=seconds, told=told)

    def inspect(self, name: str, what: str) -> Any:
        """Something of an image or a container."""
        return json.loads(self("inspect", "--format", f"{{{{json {what}}}}}", name))

    def stop(self) -> None:
        """End the daemon and all containers with their networks, and delete what it kept."""
        for container in self("ps", "--all", "--quiet").split():
            self("rm", "--force", "--volumes", container)
        self("network", "prune", "--force")
        self._process.terminate()
        self._process.wait(DAEMON_SECONDS)
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for left in reversed([each for each in mounts if each.startswith(f"{self._folder}/")]):
            ran(["umount", left], self.environment, seconds=COMMAND_SECONDS)  # that of containers without a network
        shutil.rmtree(self._folder / "data")


class Stack:
    """compose.yaml, started as README says."""

    def __init__(self, docker: Docker, folder: Path) -> None:
        """Builds the image, and starts it."""
        self.docker, self.folder = docker, folder
        for name in NEEDED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, folder / name)
        (folder / ".git").mkdir()
        (folder / ".git/HEAD").write_text(f"{COMMIT}\n")
        self.port, self.prometheus_port = free_port(), free_port()
        self.environment = docker.environment | {
            "HARMONIUM_PORT": str(self.port),
            "PROMETHEUS_PORT": str(self.prometheus_port),
            "HARMONIUM_DEMO_TOKENS_PER_SECOND": str(TOKENS_PER_SECOND),
        }
        self.url = f"http://127.0.0.1:{self.port}"
        self.shown = [self.shell(command) for command in readme_commands()]
        """What README's commands printed."""
        self.client = OpenAI(
            base_url=f"{self.url}/v1", api_key=self.secrets["HARMONIUM_API_KEYS"], max_retries=CLIENT_RETRIES
        )

    def close(self) -> None:
        """Let go of the connections to it."""
        self.client.close()

    def shell(self, command: str, seconds: float = BUILD_SECONDS) -> str:
        """What a command in the checkout prints, with our port in the place of README's."""
        command = command.replace("localhost:8000", f"localhost:{self.port}")
        return ran(["bash", "-euc", command], self.environment, cwd=self.folder, seconds=seconds)

    def compose(
        self,
        *command: str,
        seconds: float = BUILD_SECONDS,
        profiles: Sequence[str] = ("workers", "observability"),
        **environment: str,
    ) -> str:
        """What a command of Compose prints."""
        known = [each for profile in profiles for each in ("--profile", profile)]
        return ran(
            ["docker", "compose", *known, *command], self.environment | environment, cwd=self.folder, seconds=seconds
        )

    def up(self, *services: str, workers: int = 3, **environment: str) -> None:
        """Have these services up and healthy."""
        scale = ["--scale", f"worker={workers}"] if "worker" in services else []
        self.compose("up", "--detach", "--wait", *scale, *services, seconds=BUILD_SECONDS, **environment)

    @property
    def secrets(self) -> dict[str, str]:
        lines = (self.folder / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--all", "--quiet", service).split()

    def kill(self, container: str) -> None:
        """kill -9 its first process, as a crash would: Docker then starts it again, by itself."""
        pid = self.docker.inspect(container, ".State.Pid")
        started = self.docker.inspect(container, ".State.StartedAt")
        os.kill(pid, 9)
        wait_until(
            lambda: (
                self.docker.inspect(container, ".State.StartedAt") != started
                and self.docker.inspect(container, ".State.Health.Status") == "healthy"
            ),
            DAEMON_SECONDS,
            f"{container} is not back",
        )

    def executed(self, service: str, *command: str) -> str:
        """What a command inside a service's container prints. Raises CalledProcessError."""
        return self.compose("exec", "--no-TTY", service, *command)


def readme_commands() -> Sequence[str]:
    """README's commands for Docker, each as it is typed."""
    (text,) = [each.text for each in blocks(read("README.md")) if "docker compose" in each.text]
    return [each.replace("\\\n", "") for each in text.removeprefix("$ ").split("\n$ ")]


def ran(
    command: Sequence[str | Path],
    environment: dict[str, str],
    *,
    seconds: float,
    cwd: Path | None = None,
    told: str = "",
) -> str:
    """What a command prints. Raises CalledProcessError, which has what it said of its failure."""
    done = subprocess.run(
        command, env=environment, cwd=cwd, input=told, capture_output=True, text=True, timeout=seconds
    )
    if done.returncode:
        error = subprocess.CalledProcessError(
            done.returncode, [str(each) for each in command], done.stdout, done.stderr
        )
        error.add_note(done.stdout[-2000:] + done.stderr[-4000:])
        raise error
    return done.stdout


@contextmanager
def running_docker(folder: Path) -> Generator[Docker]:
    """A daemon, which is certainly gone afterwards."""
    setup = ran([ROOT / "scripts" / "docker-setup"], dict(os.environ), seconds=900)
    docker = Docker(folder, Path(setup.strip().splitlines()[-1]))
    try:
        yield docker
    finally:
        docker.stop()
