"""A llama.cpp server of our own: how it begins, what keeps it from that, what becomes of it when either side dies."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from service.backoff import Backoff
from service.engine.port import EngineBroke, EngineUnavailable, Finish, Generation, Sampling
from service.features.llama.local import LlamaLocalEngine
from service.harmony.tokens import STOPS, decode
from tests.support import ROOT
from tests.support.engine.conformance import sample
from tests.support.engine.generating import generated
from tests.support.engine.prompts import prompt, user
from tests.support.llama.talker import CONTEXT_TOKENS, OPTIONS, built
from tests.support.waiting import until, wait_until

BACK_SECONDS = 60.0
"""How long a start may take on a busy machine, with the pause before it."""

ANNA = prompt(user("My name is Anna."))


@pytest.fixture
async def engine() -> AsyncGenerator[LlamaLocalEngine, None]:
    engine = LlamaLocalEngine(built(), OPTIONS, context_tokens=CONTEXT_TOKENS)
    await engine.start()
    yield engine
    await engine.close()


def process_of(engine: LlamaLocalEngine) -> int:
    assert engine._process is not None
    return engine._process.pid


def is_there(pid: int) -> bool:
    """Whether a process is, or is yet to be buried."""
    return Path(f"/proc/{pid}").exists()


async def test_it_serves_the_file_until_it_is_closed_and_again_when_it_is_started(engine: LlamaLocalEngine) -> None:
    assert (engine.model.id, engine.model.context_tokens) == ("talker", CONTEXT_TOKENS)
    assert engine.servers() == {"llama-local": True}
    pid = process_of(engine)
    await engine.close()
    assert not is_there(pid)
    assert engine.servers() == {"llama-local": False}
    with pytest.raises(EngineUnavailable):
        await engine.check()
    await engine.start()
    assert decode((await sample(engine, ANNA, 60)).tokens).endswith("Nice to meet you, Anna.")


async def test_where_it_dies_what_runs_fails_and_it_is_started_again(engine: LlamaLocalEngine) -> None:
    generation = Generation("test", prompt(user("Count to 300.")), Sampling(2_000, 0, stop_ids=STOPS))
    async with aclosing(generated(engine, generation)) as chunks:
        await anext(chunks)
        os.kill(process_of(engine), signal.SIGKILL)
        with pytest.raises(EngineBroke):
            async for _ in chunks:
                pass
    await until(lambda: _serves(engine), BACK_SECONDS)
    assert (await sample(engine, ANNA, 60)).finish is Finish.STOP


@pytest.mark.parametrize("hindrance", ["no process can be made", "it never says a word"])
async def test_what_hinders_one_start_is_no_end_of_starting(monkeypatch: pytest.MonkeyPatch, hindrance: str) -> None:
    engine, made, tries = LlamaLocalEngine(ROOT / "README.md", {}), asyncio.create_subprocess_exec, list[int]()

    async def make(*_: str, **more: Any) -> asyncio.subprocess.Process:
        tries.append(1)
        if hindrance == "no process can be made":
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return await made("sleep", "600", **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", make)
    for name, value in {"START_SECONDS": 0.1, "END_SECONDS": 0.1, "AGAIN": Backoff(0.1, 0.1)}.items():
        monkeypatch.setattr(f"service.features.llama.local.{name}", value)
    engine._process = await made("true")
    engine._keeper = asyncio.create_task(engine._keep())
    await until(lambda: len(tries) > 2)
    await engine.close()


async def _serves(engine: LlamaLocalEngine) -> bool:
    try:
        await engine.check()
    except EngineUnavailable:
        return False
    return True


@pytest.mark.parametrize(
    ("file", "options", "reason"),
    [
        ("nothing.gguf", {}, "there is no file .*nothing.gguf; set HARMONIUM_LOCAL_MODEL"),
        ("README.md", {}, "llama.cpp does not start: RuntimeError: "),
        ("", {"n_gpu_layer": 1}, "llama.cpp does not start: ValueError: llama.cpp has no option 'n_gpu_layer'"),
    ],
)
async def test_what_keeps_it_from_starting_is_told(file: str, options: dict[str, Any], reason: str) -> None:
    engine = LlamaLocalEngine(ROOT / file if file else built(), options)
    with pytest.raises(EngineUnavailable, match=reason):
        await engine.start()
    assert engine.servers() == {"llama-local": False}


PARENT = """
import asyncio, sys
from pathlib import Path
from service.features.llama.local import LlamaLocalEngine

async def main():
    engine = LlamaLocalEngine(Path(sys.argv[1]), {"cpuparams.n_threads": 1}, context_tokens=1024)
    await engine.start()
    print(engine._process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_it_ends_with_whoever_started_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, built()], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    child = Path("/proc", parent.stdout.readline().strip())
    assert b"llama.child" in (child / "cmdline").read_bytes()
    parent.kill()
    parent.communicate()
    wait_until(lambda: not child.exists() or not (child / "cmdline").read_bytes(), BACK_SECONDS)


async def test_one_that_is_given_up_while_it_loads_leaves_nothing() -> None:
    engine = LlamaLocalEngine(built(), OPTIONS)
    starting = asyncio.create_task(engine.start())
    await until(lambda: engine._process is not None, BACK_SECONDS)
    pid = process_of(engine)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not is_there(pid)


def test_one_core_is_left_to_others_unless_the_options_say_otherwise() -> None:
    cores = os.cpu_count() or 1
    engine = LlamaLocalEngine(Path("any.gguf"), {})
    assert engine._child.options == {"cpuparams.n_threads": max(1, cores - 1)}
    assert LlamaLocalEngine(Path("any.gguf"), {"cpuparams.n_threads": 8})._child.options["cpuparams.n_threads"] == 8
