"""VllmLocalEngine on the talker, the toy model of scripts/vllm-cpu: the conformance suite, and what befalls processes.

It runs in .venv-vllm, the only environment with vLLM: `scripts/test --vllm --full` takes care of that. A load takes
half a minute and 4 GB. So one engine serves all tests, and a test that closes it, or kills its core, costs a load.
"""

import asyncio
import gc
import multiprocessing
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from service.engine.port import EngineUnavailable
from service.features.vllm_local.library import CORE
from service.features.vllm_local.local import VllmLocalEngine
from tests.support import ROOT
from tests.support.engine.conformance import begin, sample
from tests.support.engine.local_standin import WatchedLocal, is_installed
from tests.support.engine.prompts import prompt, user
from tests.support.engine.watched import Engine
from tests.support.vllm.talker import TalkerConformance
from tests.support.waiting import until

if not is_installed():
    pytest.skip("vLLM is not installed here; scripts/test --vllm --full runs this where it is", allow_module_level=True)

import psutil  # comes with vLLM

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(200),  # a load among other tests
    pytest.mark.filterwarnings("ignore"),  # vLLM and what it imports warn of much that is theirs
]

MODEL = ROOT / ".venv-vllm" / "talker"
ARGS: dict[str, Any] = {
    "dtype": "bfloat16",
    "enforce_eager": True,
    "max_model_len": 4096,
    "max_num_seqs": 16,
    # with prompts in parts, a seed kills a core on the CPU
    "max_num_batched_tokens": 8192,
}
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
"""As in scripts/vllm-cpu."""

NOTICED_SECONDS = 5.0
"""How soon a core's death has to be known; vLLM looks every second."""

GONE_SECONDS = 30.0
"""How soon processes have to be gone that nobody needs any more."""


@pytest.fixture(scope="module")
def talker() -> Iterator[str]:
    """The model's folder, in an environment that suits it."""
    if not MODEL.is_dir():
        pytest.skip("there is no .venv-vllm/talker; scripts/vllm-cpu --setup builds it")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield str(MODEL)
        gc.collect()  # what vLLM left open warns now, while warnings of its are ignored


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loaded(talker: str) -> AsyncGenerator[WatchedLocal, None]:
    engine = WatchedLocal(talker, ARGS, served_as="talker")
    yield engine
    await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def engine(loaded: WatchedLocal) -> WatchedLocal:
    """The engine, loaded anew if the test before has left none that works."""
    try:
        await loaded.check()
    except EngineUnavailable:
        await loaded.start()
    return loaded


def cores() -> list[psutil.Process]:
    """vLLM's processes that this one has made, and theirs."""
    children = [psutil.Process(each.pid) for each in multiprocessing.active_children() if each.name == CORE]
    return [*children, *(worker for child in children for worker in child.children(recursive=True))]


def gone(processes: list[psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes)


class TestConformance(TalkerConformance):
    """The suite. Its last two tests close the engine."""

    async def test_closing_the_engine_ends_what_is_running(self, engine: Engine) -> None:
        """And vLLM's processes with it."""
        processes = cores()
        await super().test_closing_the_engine_ends_what_is_running(engine)
        assert len(processes) == 2
        assert gone(processes)


@pytest.mark.usefixtures("engine")
async def test_a_load_that_is_given_up_leaves_no_process(talker: str) -> None:
    before = set(cores())
    loading = asyncio.create_task(VllmLocalEngine(talker, ARGS).start())
    await until(lambda: len(set(cores()) - before) == 2, GONE_SECONDS)  # a core and its worker
    begun = list(set(cores()) - before)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert gone(begun)
    assert not gone(list(before))


async def test_a_core_that_is_killed_fails_what_runs(engine: WatchedLocal, caplog: pytest.LogCaptureFixture) -> None:
    processes, consumer = cores(), await begin(engine, prompt(user("Count to 300.")))
    os.kill(processes[0].pid, signal.SIGKILL)
    async with asyncio.timeout(NOTICED_SECONDS):
        with pytest.raises(EngineUnavailable, match="harmonium has to be restarted"):
            await consumer
    with pytest.raises(EngineUnavailable, match="harmonium has to be restarted"):
        await engine.check()
    with pytest.raises(EngineUnavailable, match="harmonium has to be restarted"):
        await sample(engine, (1,), 5)
    assert engine.running == 0
    assert [record.getMessage() for record in caplog.records].count("vLLM's engine core died") == 1
    await until(lambda: gone(processes), GONE_SECONDS)
