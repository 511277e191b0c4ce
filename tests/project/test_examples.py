"""The documents' examples, run: README's quick start and docs/tour.md as pasted, docs/architecture.md's conversation.

The first two run against `harmonium serve` on a free port in place of 8000, with an empty data folder and no
setting from outside. Output is compared with what the document shows. Never show output that wasn't printed.
"""

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from service.engine.port import Between, Chunk, Generation, ModelCard, Take
from service.features.demo.engine import DemoEngine
from service.harmony import tokens
from service.harmony.segments import Closed, Opened, Segment, Segmenter
from service.process import Settings
from service.settings.core import DEFAULT_TENANT
from service.settings.sources import PREFIX
from store.turn import StoredMessage
from tests.support import ROOT
from tests.support.documents import block, blocks, read, rows, section, shows
from tests.support.service import inside
from tests.support.service.process import ServiceProcess

Json = dict[str, Any]

DEADLINE_SECONDS = 90
ADDRESS = "http://localhost:8000"
NEXT = "----- next block -----"
TOUR = "docs/tour.md"
LIFECYCLE = "docs/architecture.md"
TOOLS = "docs/tools.md"
MODEL = "gpt-oss-20b"
DATE = "2026-11-20"
WORDS = ("My name is Ada.", "What is my name?")
MARKS = {getattr(tokens, name): f"<|{name.lower()}|>" for name in ("START", "END", "MESSAGE", "CHANNEL", "RETURN")}


# --- the quick start ---

TOKENS_PER_SECOND = 2_000
"""So quick that nobody waits, and slow enough to steer what counts far, also on a busy machine."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a service started as README says."""
    with serving(tmp_path_factory.mktemp("service")) as url:
        yield url


@contextmanager
def serving(folder: Path, **settings: object) -> Iterator[str]:
    """The address of a service that is started in a folder."""
    process = ServiceProcess(folder, demo_tokens_per_second=TOKENS_PER_SECOND, **settings)
    try:
        yield process.url.replace("127.0.0.1", "localhost")
    finally:
        process.stop()


def quick_start() -> str:
    return section(read("README.md"), "Quick start")


def shown(text: str, label: str) -> list[tuple[str, str]]:
    """The blocks with this label, each with the output that is shown right after it."""
    return [(each, after.text) for (found, each), after in pairwise(blocks(text)) if found == label]


def run(command: Sequence[str], url: str) -> str:
    """What a command prints, with the quick start's address replaced."""
    argv = [part.replace(ADDRESS, url) for part in command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quick_start_begins_with_the_command_that_the_tests_start() -> None:
    assert shown(quick_start(), "bash")[0][0] == "scripts/serve"
    assert read("scripts/serve").endswith('/scripts/harmonium" serve "$@"\n')
    assert 'exec "$root/.venv/bin/harmonium" "$@"' in read("scripts/harmonium")
    assert ADDRESS.endswith(f":{Settings.model_fields['port'].default}")


@pytest.mark.skipif(shutil.which("curl") is None, reason="the shell part needs curl")
def test_the_shell_part_prints_what_is_shown(service: str) -> None:
    _, (command, answer) = shown(quick_start(), "bash")
    assert shows(answer.replace("\n", ""), run(["bash", "-c", command], service))


@pytest.mark.parametrize(
    ("document", "count"), [("README.md", 1), (TOUR, 10), ("docs/conversations.md", 5), ("docs/websocket.md", 2)]
)
def test_the_python_parts_print_what_is_shown(service: str, document: str, count: int) -> None:
    pasted = shown(quick_start() if document == "README.md" else read(document), "python")
    assert len(pasted) == count
    script = f"\nprint({NEXT!r})\n".join(code for code, _ in pasted)
    printed = run([sys.executable, "-c", script], service).split(f"{NEXT}\n")
    assert [text.rstrip("\n") for text in printed] == [output for _, output in pasted]


def test_every_kind_of_route_has_its_row_in_readme(service: str) -> None:
    paths: dict[str, dict[str, Any]] = httpx.get(f"{service}/openapi.json").json()["paths"]
    kinds = {re.match(r"/v1/\w+|/\w*", path)[0] for path in paths}  # type: ignore[index]
    told = [
        kind for row in rows(section(read("README.md"), "What is served")) for kind in re.findall("`(.+?)`", row[0])
    ]
    assert sorted(told) == sorted(kinds)


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a service with tools, started as its page says, in a folder with what a checkout has."""
    folder = tmp_path_factory.mktemp("equipped")
    first = blocks(section(read(TOOLS), "A first server"))
    for name, label in (("maths.py", "python"), ("mcp.toml", "toml")):
        (folder / name).write_text(next(each.text for each in first if each.label == label))
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "docs").symlink_to(ROOT / "docs")
    command = next(each.text for each in blocks(hosted_tools()) if each.label == "console")
    told = [word.split("=") for word in command.removeprefix("$ ").removesuffix(" scripts/serve").split()]
    with serving(folder, **{name.removeprefix(PREFIX).lower(): value for name, value in told}) as url:
        yield url


def hosted_tools() -> str:
    """The example of tools that the service runs."""
    return section(read(TOOLS), "Tools that the service runs")


def test_the_tools_of_the_example_run(equipped: str) -> None:
    ((code, printed),) = shown(hosted_tools(), "python")
    (made, _), *_ = shown(quick_start(), "python")
    before = made.partition("\nfirst = ")[0]
    assert shows(printed, run([sys.executable, "-c", f"{before}\n{code}"], equipped).rstrip("\n"))


# --- the conversation of docs/architecture.md --------------------------------------------------------------------


class Recorder(DemoEngine):
    """The demo engine, which remembers what it was given and what it sampled."""

    def __init__(self) -> None:
        super().__init__(ModelCard(MODEL, 0, 131_072))
        self.prompts: list[Sequence[int]] = []
        self.sampled: list[list[int]] = []

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        self.prompts.append(generation.prompt)
        self.sampled.append([])

        def noted(chunk: Chunk) -> bool:
            self.sampled[-1] += chunk.tokens
            return take(chunk)

        await super().sample(generation, noted, between)


class Example(NamedTuple):
    """The conversation: the prompts and samples of its turns, and of the second its stream and what is stored."""

    prompts: list[Sequence[int]]
    sampled: list[list[int]]
    stream: str
    kept: tuple[StoredMessage, ...]


@pytest.fixture(scope="module")
def example(redis_url: str) -> Example:
    """The two turns, held with the whole application and a real store."""
    return asyncio.run(converse(Settings.model_validate({"redis_url": redis_url, "redis_prefix": "example"})))


async def converse(settings: Settings) -> Example:
    engine, body = Recorder(), {"model": MODEL, "reasoning": {"effort": "low"}}
    async with inside.serving(settings, engine) as service, service.http() as client:
        first = (await client.post("/v1/responses", json=body | {"input": WORDS[0]})).json()["id"]
        more: Json = {"previous_response_id": first, "stream": True, "stream_options": {"include_obfuscation": False}}
        stream = (await client.post("/v1/responses", json=body | more | {"input": WORDS[1]})).text
        found = re.findall(r'"id":"(resp_[0-9a-f]+)"', stream)[0]
        chain = await service.store.chain(DEFAULT_TENANT, found)
    return Example(engine.prompts, engine.sampled, stream, chain.turns[-1])


def text(ids: Sequence[int]) -> str:
    """Ids as the document shows them: marks by name, and the day on which it was written."""
    written = "".join(MARKS.get(token) or tokens.decode([token]) for token in ids)
    return re.sub(r"Current date: [0-9-]+", f"Current date: {DATE}", written)


def test_the_prompts_are_those_of_the_document(example: Example) -> None:
    for number, prompt in enumerate(example.prompts, 1):
        assert text(prompt) == block(LIFECYCLE, f"harmony prompt {number}")
        assert f"{len(prompt)} tokens" in read(LIFECYCLE)


def test_the_tokens_sampled_are_those_of_the_document(example: Example) -> None:
    sampled = example.sampled[1]
    assert text(sampled) == block(LIFECYCLE, "harmony sampled 2")
    assert sampled == [int(word) for word in block(LIFECYCLE, "ids sampled 2").split()]
    assert f"These are {len(sampled)} ids" in read(LIFECYCLE)


def test_the_segments_are_those_of_the_document(example: Example) -> None:
    segmenter = Segmenter()
    found = [*segmenter.feed(example.sampled[1]), *segmenter.end()]
    assert "".join(map(line, found)).replace(" \n", "\n").strip() == block(LIFECYCLE, "segments 2")


def line(segment: Segment) -> str:
    if isinstance(segment, Opened):
        return f"Opened {segment.header.channel}\n"
    return f"\nClosed {len(segment.ids)} ids\n" if isinstance(segment, Closed) else f"{segment!r} "


def test_the_messages_kept_are_those_of_the_document(example: Example) -> None:
    kept = [text(tokens.unpack(message.tokens)) for message in example.kept]
    assert kept == block(LIFECYCLE, "harmony kept 2").splitlines()


def test_the_stream_is_that_of_the_document(example: Example) -> None:
    assert shows(block(LIFECYCLE, "sse 2"), example.stream.rstrip("\n"))
