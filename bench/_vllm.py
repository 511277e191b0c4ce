"""A real vLLM, and a conversation as each way to it knows it: what bench/vllm.py measures.

`harmonium` is the service before vLLM, `generate` is vLLM's endpoint for token ids, asked with the very bytes that
the service would send, `responses` is vLLM's own Responses endpoint with its store on. All three go to one vLLM and
get the same prompts and the same number of tokens out. Nothing here may measure.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from bench._harness import HOST, Client, Server, free_port
from service.engine.port import Generation, Sampling
from service.engine.vllm.servers import TokensEndpoint, request_body
from service.harmony import tokens

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = str(ROOT / "scripts" / "vllm-cpu")
INSTALL_SECONDS = 1800
START_SECONDS = 300
READY_SECONDS = 30
STOP_SECONDS = 30
HEALTH_SECONDS = 0.5
LOG_CHARS = 3000

DEPTHS = (1, 10, 50)
"""Turns of the conversations that are continued."""

TOKENS = 32
"""What the measured answers are cut at. The talker would count further."""

REMARK = "Thank you for your help with number {}."
"""What the turns before the measured one said: 24 tokens a turn of the talker, so that 50 fit a context of 4,096."""

SALT = "bench"
"""The service salts the prefix cache too."""

RESPONSES = "/v1/responses"
RENDER = "/v1/responses/render"
LISTENING = "0A"

HARMONIUM, GENERATE, OWN = "harmonium", "generate", "responses"

# Each way says the first token of text in an event of its own; before it the model says three of the message's header.
_DELTA = re.compile(rb"_text\.delta")
_TEXT_ID = re.compile(rb"[\[,]%d(?:,|\].*?\"token_ids\":\[)" % tokens.MESSAGE, re.DOTALL)
_ANY_ID = re.compile(rb"\"token_ids\":\[[0-9]")


class Asked(NamedTuple):
    """Which model is measured, how `scripts/vllm-cpu` serves it, and with what question and instructions; the ids that
    end its turns, and what finds its first token of text among ids.
    """

    options: Sequence[str]
    question: str
    instructions: str
    ends: tuple[int, ...]
    text_id: re.Pattern[bytes]


TALKER = Asked((), "Count to 40.", "", tokens.STOPS, _TEXT_ID)
SMOL = Asked(("--model", "smol"), "Write a long story about a dog and a cat.", "Be kind.", (2,), _ANY_ID)
"""A model that speaks by a chat template, which has instructions of its own where there are none."""


class Way(NamedTuple):
    """One way to the model: where it is asked, with which body at each depth, and what its answers look like.

    `begun` finds the event with the first token of text, `whole` is in every answer that has all of its tokens.
    """

    name: str
    port: int
    path: str
    bodies: Mapping[int, bytes]
    begun: re.Pattern[bytes]
    whole: bytes


class Turn(NamedTuple):
    """A turn of a conversation: its id, and the text that the model answered."""

    id: str
    answer: str


class Vllm:
    """A vLLM of one's own: `scripts/vllm-cpu` on a free port, with its Responses store on; a context manager.

    `serving` is what vLLM's server is given besides.
    """

    def __init__(self, asked: Asked, serving: Sequence[str] = ()) -> None:
        self._asked, self._serving = asked, serving
        self.port = free_port()

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile("w+")
        subprocess.run([SCRIPT, *self._asked.options, "--setup"], check=True, timeout=INSTALL_SECONDS)
        self._process = subprocess.Popen(
            [SCRIPT, *self._asked.options, "--port", str(self.port), *self._serving],
            env={**os.environ, "VLLM_ENABLE_RESPONSES_API_STORE": "1"},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            process_group=0,  # to be ended with its engine; a session of its own would be scheduled apart, see docs
        )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _wait(self) -> None:
        """Return once it can serve."""
        deadline = time.monotonic() + START_SECONDS
        while not _well(self.port, "/health"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._log.seek(0)
                raise RuntimeError(f"vLLM did not start: …{self._log.read()[-LOG_CHARS:]}")
            time.sleep(HEALTH_SECONDS)

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


def harmonium(port: int, *, profile: bool) -> Server:
    """The service before the vLLM at `port`."""
    settings = {"HARMONIUM_ENGINE": "vllm", "HARMONIUM_ENGINE_URL": f"http://{HOST}:{port}"}
    return Server(["-m", "service", "serve"], settings=settings, profile=profile)


def listening_process(port: int) -> int:
    """The id of the process that listens on `port`: a vLLM's API server, and none of its children.

    Raises RuntimeError if that isn't exactly one that may be looked into.
    """
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    places = {f"socket:[{row[9]}]" for row in rows if row[3] == LISTENING and int(row[1].split(":")[1], 16) == port}
    holders = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal() and places & _sockets(each)]
    if len(holders) != 1:
        raise RuntimeError(f"{len(holders)} processes found that listen on port {port}; it takes one to measure it")
    return holders[0]


def ways(vllm: int, service: int, asked: Asked) -> list[Way]:
    """Hold the conversation on both servers, which listen on these ports; the ways to continue it."""
    wait_until_ready(service)
    return asyncio.run(_ways(vllm, service, asked))


def wait_until_ready(service: int) -> None:
    """Return once the service at this port can serve; it may be there before it has found its engine."""
    deadline = time.monotonic() + READY_SECONDS
    while not _well(service, "/ready"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"harmonium was not ready within {READY_SECONDS} s")
        time.sleep(HEALTH_SECONDS)


async def _ways(vllm: int, service: int, asked: Asked) -> list[Way]:
    model = served(vllm)
    theirs, ours = await asyncio.gather(_converse(vllm, model, asked), _converse(service, model, asked))
    prompts = {depth: await _prompt(vllm, model, theirs[:depth], asked) for depth in DEPTHS}
    for port, turns in ((vllm, theirs), (service, ours)):
        for depth, prompt in prompts.items():
            await _check(
                port, _body(model, asked, input=asked.question, previous_response_id=turns[depth - 1].id), len(prompt)
            )
    raw = {depth: _generation(model, prompt, asked.ends) for depth, prompt in prompts.items()}
    bodies = [
        {
            depth: _body(model, asked, input=asked.question, previous_response_id=turns[depth - 1].id, stream=True)
            for depth in DEPTHS
        }
        for turns in (ours, theirs)
    ]
    output, completion = (b'"%s_tokens":%d,' % (kind, TOKENS) for kind in (b"output", b"completion"))
    return [
        Way(HARMONIUM, service, RESPONSES, bodies[0], _DELTA, output),
        Way(GENERATE, vllm, TokensEndpoint.GENERATE, raw, asked.text_id, completion),
        Way(OWN, vllm, RESPONSES, bodies[1], _DELTA, output),
    ]


async def _converse(port: int, model: str, asked: Asked) -> list[Turn]:
    """Hold a conversation of as many turns as the deepest depth."""
    turns: list[Turn] = []
    async with Client(port) as client:
        for number in range(max(DEPTHS)):
            previous = {"previous_response_id": turns[-1].id} if turns else {}
            answer = json.loads(
                await client.post(RESPONSES, _body(model, asked, input=REMARK.format(number), **previous))
            )
            turns.append(Turn(answer["id"], answer["output"][-1]["content"][0]["text"]))
    return turns


async def _prompt(port: int, model: str, turns: Sequence[Turn], asked: Asked) -> list[int]:
    """The prompt of the question behind `turns`, which vLLM says only for a conversation that is sent as a whole."""
    items: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        text = {"type": "output_text", "text": turn.answer, "annotations": []}
        answer = {"type": "message", "role": "assistant", "id": turn.id, "status": "completed", "content": [text]}
        items += [{"role": "user", "content": REMARK.format(number)}, answer]
    body = _body(model, asked, input=[*items, {"role": "user", "content": asked.question}])
    async with Client(port) as client:
        return json.loads(await client.post(RENDER, body))["token_ids"]


async def _check(port: int, body: bytes, prompt_tokens: int) -> None:
    """Raise RuntimeError where a way's prompt or answer is not as long as the others'."""
    async with Client(port) as client:
        usage = json.loads(await client.post(RESPONSES, body))["usage"]
    found = usage["input_tokens"], usage["output_tokens"]
    if found != (prompt_tokens, TOKENS):
        raise RuntimeError(f"{found} tokens in and out, where {(prompt_tokens, TOKENS)} were expected")


def _body(model: str, asked: Asked, **more: Any) -> bytes:
    """The body of a request, greedy: everybody gets the same answers."""
    same = {"model": model, "temperature": 0, "max_output_tokens": TOKENS, "reasoning": {"effort": "low"}}
    instructed = {"instructions": asked.instructions} if asked.instructions else {}
    return json.dumps(same | instructed | more).encode()


def _generation(model: str, prompt: Sequence[int], ends: tuple[int, ...]) -> bytes:
    """What the service sends to vLLM for this prompt."""
    sampling = Sampling(max_tokens=TOKENS, temperature=0, stop_ids=ends)
    return request_body(TokensEndpoint.GENERATE, Generation("", prompt, sampling, cache_salt=SALT), model)


def served(port: int) -> str:
    """The model that a vLLM serves."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/v1/models", timeout=START_SECONDS) as answer:
        return json.load(answer)["data"][0]["id"]


def _well(port: int, path: str) -> bool:
    """Whether a server's own check passes."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=HEALTH_SECONDS) as answer:
            return answer.status == 200
    except OSError:  # not there yet, or it says that it isn't well
        return False


def _sockets(process: Path) -> set[str]:
    """What a process has open, as the kernel names it; nothing of one that has gone or is somebody else's."""
    found: set[str] = set()
    try:
        for each in (process / "fd").iterdir():
            found.add(os.readlink(each))
    except OSError:
        return found
    return found
