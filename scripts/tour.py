"""`scripts/tour`: what a service does, step by step, each with its figures.

Every step asks over HTTP, as any client would. Without `--url` there is a store in a temporary folder, with a service
and a worker on it, and the engine that the settings name: the worker is killed with SIGKILL amid a background response,
and another one is started. A step that fails says why in its row, and the exit status is 1.
"""

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from service.features.client.errors import ClientError, RefusedByService
from service.features.client.profile import KEY, Profile
from service.features.client.service import TERMINAL_EVENTS, Json, RemoteService
from store.embedded import EmbeddedServer

READY_SECONDS = 900.0
"""How long a service may take to be ready: an engine in its process loads a model first."""

SLOW_TOKENS = "60"
"""The demo engine's tokens a second, so that a worker dies amid a response."""

BEGUN_EVENTS = 20
"""The events after which a background response is well under way."""

RESTART_SECONDS = 120.0
"""How long a service may be away after the command of `--kill`, which may have killed more than a worker."""

DEAD_SECONDS = 2.0
"""The least that a response pauses for longer than it did before when its worker is killed: its lease has to end."""

CANCEL_SECONDS = 30.0
LONG = "Count to 100, one number a line."
SHORT = "My name is Ada. Say hello to me in one sentence."


@dataclass
class Tour:
    """The steps so far: what each came to, and the figures by their names."""

    service: RemoteService
    model: str
    kill: Callable[[], None] | None
    rows: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    failed: bool = False

    def run(self) -> None:
        """All steps. What one needs of another is made anew where that failed."""
        for name, step in (
            ("versions", self.versions),
            ("create, streamed", self.create),
            ("continue", self.go_on),
            ("worker killed", self.survive),
            ("cancel", self.cancel),
        ):
            try:
                told = step()
            except ClientError as error:
                told, self.failed = f"FAILED: {error}", True
            self.rows.append((name, told))
            print(f"{name}: {told}", file=sys.stderr)

    def versions(self) -> str:
        """The releases, the state of store and engine, the model, and what the engine lacks."""
        version, ready = self.service.call("GET", "/")["version"], self.service.call("GET", "/ready")
        engine = ", ".join((ready["engine"], *ready.get("engine_releases", ())))
        told = f"harmonium {version}, store {ready['store']}, engine {engine}, {self.model}"
        return "; ".join((told, *ready.get("engine_lacks", ())))

    def create(self) -> str:
        """A streamed response: the time to its first token, and its tokens a second."""
        began, first, tokens = time.monotonic(), None, 0
        for event in self.service.stream("POST", "/v1/responses", self._body(SHORT, stream=True)):
            if event["type"].endswith(".delta") and first is None:
                first = time.monotonic()
            if event["type"] in TERMINAL_EVENTS:
                tokens = self._ended(event)["usage"]["output_tokens"]
        ended = time.monotonic()
        if first is None:
            raise ClientError("the answer had no text")
        rate = (tokens - 1) / max(ended - first, 1e-6)
        return f"first token after {(first - began) * 1000:.0f} ms, {tokens} tokens, {rate:.0f} tokens/s"

    def go_on(self) -> str:
        """Two turns more: the share of the last prompt that the engine had cached."""
        response = self._ended({"response": self.service.call("POST", "/v1/responses", self._body(SHORT))})
        for words in ("What is my name?", "And say it backwards."):
            body = self._body(words, previous_response_id=response["id"])
            response = self._ended({"response": self.service.call("POST", "/v1/responses", body)})
        usage = response["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        return f"{cached} of {usage['input_tokens']} prompt tokens cached ({cached / usage['input_tokens']:.0%})"

    def survive(self) -> str:
        """A background response whose worker dies: every event comes once and in order, up to its end."""
        if self.kill is None:
            return "not tried: --kill COMMAND kills a worker of this service"
        body = self._body(LONG, background=True, stream=True)
        numbers: list[int] = []
        id = ""
        before, usual, silence = time.monotonic(), 0.0, 0.0
        events = self.service.stream("POST", "/v1/responses", body)
        for event in events:
            id = event.get("response", {}).get("id", id)
            numbers.append(event["sequence_number"])
            usual, before = max(usual, time.monotonic() - before), time.monotonic()
            if event["type"] in TERMINAL_EVENTS or len(numbers) == BEGUN_EVENTS:
                break
        events.close()
        self.kill()
        when_ready(self.service, starts=lambda: True, seconds=RESTART_SECONDS)
        if self.service.call("GET", f"/v1/responses/{id}")["status"] != "in_progress":
            raise ClientError(
                "the response ended before its worker was killed; try a slower engine, or with the demo engine "
                "HARMONIUM_DEMO_TOKENS_PER_SECOND=50"
            )
        before = time.monotonic()
        for event in self.service.follow(id, numbers[-1]):
            silence, before = max(silence, time.monotonic() - before), time.monotonic()
            numbers.append(event["sequence_number"])
        if numbers != list(range(len(numbers))):
            raise ClientError(f"of {len(numbers)} events some are missing or came twice")
        status = self.service.call("GET", f"/v1/responses/{id}")["status"]
        went_on = f"another worker continued after {silence:.1f} s"
        if silence < usual + DEAD_SECONDS:
            went_on = "without a pause: perhaps nothing that ran it was killed"
        return f"{status}, {len(numbers)} events once and in order, {went_on}"

    def cancel(self) -> str:
        """A background response that is cancelled, and how long that took."""
        id = self.service.call("POST", "/v1/responses", self._body(LONG, background=True))["id"]
        began = time.monotonic()
        self.service.call("POST", f"/v1/responses/{id}/cancel")
        while (status := self.service.call("GET", f"/v1/responses/{id}")["status"]) in ("queued", "in_progress"):
            if time.monotonic() - began > CANCEL_SECONDS:
                raise ClientError(f"{id} is {status} {CANCEL_SECONDS:.0f} s after it was cancelled")
            time.sleep(0.05)
        return f"{status} after {(time.monotonic() - began) * 1000:.0f} ms"

    def table(self) -> str:
        """The rows in Markdown."""
        return "\n".join(["| Step | Outcome |", "| --- | --- |", *(f"| {name} | {told} |" for name, told in self.rows)])

    def _body(self, words: str, **also: object) -> Json:
        return {"model": self.model, "input": words, "max_output_tokens": 512, "metadata": {"harmonium": "tour"}} | also

    def _ended(self, event: Json) -> Json:
        """The response of an event. Raises ClientError where it failed."""
        response = event["response"]
        if response["status"] not in ("completed", "incomplete"):
            raise ClientError(f"{response['id']} is {response['status']}: {response['error']}")
        return response


@contextmanager
def own_service() -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a service that is started for the tour, and a function that kills its worker and starts another."""
    with TemporaryDirectory() as folder, EmbeddedServer(Path(folder) / "redis") as redis, ExitStack() as ended:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        settings = {"HARMONIUM_REDIS_URL": redis.url, "HARMONIUM_ARCHIVE_URL": "none", "HARMONIUM_PORT": str(port)}
        settings |= {"HARMONIUM_DEMO_TOKENS_PER_SECOND": SLOW_TOKENS, "HARMONIUM_LOG_LEVEL": "warning"}
        environment = os.environ | settings | {"HARMONIUM_API_KEYS": "", "HARMONIUM_WORKER_PORT": "0"}

        def started(*arguments: str) -> subprocess.Popen[bytes]:
            command = [Path(sys.executable).with_name("harmonium"), *arguments]
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=sys.stderr)
            ended.callback(process.wait)
            ended.callback(process.terminate)
            return process

        serving = started("serve", "--no-embedded-worker")
        worker = started("worker")

        def kill() -> None:
            nonlocal worker
            worker.kill()
            worker.wait()
            worker = started("worker")

        url = f"http://127.0.0.1:{port}"
        when_ready(RemoteService(Profile(url, None, None)), starts=lambda: serving.poll() is None)
        yield url, kill


def when_ready(
    service: RemoteService, *, starts: Callable[[], bool] = lambda: False, seconds: float = READY_SECONDS
) -> None:
    """Return once the service is ready. Raises ClientError where it isn't in time, or can't be reached and `starts` is
    false.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            service.call("GET", "/ready")
            return
        except ClientError as error:
            if time.monotonic() > until or not (isinstance(error, RefusedByService) or starts()):
                raise
        time.sleep(0.2)


def killing(command: str) -> Callable[[], None]:
    """A function that runs a command which kills a worker. It raises ClientError where that fails."""

    def kill() -> None:
        done = subprocess.run(shlex.split(command), stdout=sys.stderr, check=False)
        if done.returncode:
            raise ClientError(f"{command} exits with {done.returncode}")

    return kill


def main() -> int:
    """The exit status of the command: 1 where a step failed."""
    parser = argparse.ArgumentParser(
        prog="scripts/tour", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--url", help=f"a service that runs, without /v1; its key is in {KEY}")
    parser.add_argument("--model", help="the model to ask for; else the first that the service lists")
    parser.add_argument(
        "--kill",
        metavar="COMMAND",
        help="with --url: kills what runs background responses, 'docker compose restart --timeout 0 harmonium' say",
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    with ExitStack() as ended:
        try:
            if options.url is None:
                url, kill = ended.enter_context(own_service())
            else:
                url, kill = options.url.rstrip("/"), killing(options.kill) if options.kill else None
            service = RemoteService(Profile(url, os.environ.get(KEY) if options.url else None, options.model))
            when_ready(service)
            tour = Tour(service, service.first_model(), kill)
            tour.run()
        except ClientError as error:
            print(f"scripts/tour: {error}", file=sys.stderr)
            return 1
        print(json.dumps(dict(tour.rows)) if options.json else tour.table())
        return int(tour.failed)


if __name__ == "__main__":
    sys.exit(main())
