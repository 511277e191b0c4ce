"""The engine with vLLM in this process, with a stand-in that says whatever vLLM can say. Needs no vLLM."""

import asyncio
import math
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from service.engine.port import (
    LEAST_LOGPROB,
    Chunk,
    Defaults,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Finish,
    Generation,
    Sampling,
)
from service.engine.vllm import library, local
from service.engine.vllm.local import VllmLocalEngine
from tests.support.engine.generating import generated
from tests.support.engine.local_standin import EngineArgs, Llm, Overload, Refusal, is_installed, output, vllm
from tests.support.engine.watched import WatchedLocal


class Start(Protocol):
    """Starts an engine on a stand-in. The engine is closed after the test."""

    async def __call__(self, llm: Llm, args: dict[str, Any] | None = None, **options: Any) -> WatchedLocal: ...


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Start, None]:
    engines: list[WatchedLocal] = []

    async def start(llm: Llm, args: dict[str, Any] | None = None, **options: Any) -> WatchedLocal:
        monkeypatch.setattr(local, "load", lambda: vllm(llm))
        engines.append(WatchedLocal("a/model", args or {}, **options))
        await engines[-1].start()
        return engines[-1]

    yield start
    for engine in engines:
        await engine.close()


async def sampled(engine: VllmLocalEngine, sampling: Sampling | None = None, **options: Any) -> list[Chunk]:
    return [chunk async for chunk in generated(engine, Generation("one", (5, 6), sampling or Sampling(9), **options))]


async def test_what_vllm_gives_is_what_comes(start: Start) -> None:
    llm = Llm(output([7]), output([8, 9]), output([], "length"))
    engine = await start(llm)
    assert await sampled(engine) == [Chunk([7], None, 128), Chunk([8, 9], None, 128), Chunk([], Finish.LENGTH, 128)]


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (Refusal("too  long\nby far"), EngineRefused, "^too long by far$"),
        (ValueError("no grammar"), EngineRefused, "^no grammar$"),
        (Overload("later"), EngineOverloaded, "vLLM takes no more work now: later"),
        (RuntimeError("x" * 9999), EngineError, "^vLLM failed: x{500}$"),
        (KeyError(), EngineError, "^vLLM failed: KeyError$"),
        (output([], "error"), EngineError, "vLLM ended the generation with 'error'"),
        (output([], "abort"), EngineUnavailable, "vLLM aborted the generation"),
    ],
)
async def test_an_end_that_is_none_is_an_error(start: Start, given: Any, kind: type[EngineError], words: str) -> None:
    engine = await start(Llm(output([7]), given))
    with pytest.raises(EngineError, match=words) as raised:
        await sampled(engine)
    assert type(raised.value) is kind
    assert engine.running == 0


async def test_a_dead_core_is_logged_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    llm = Llm(output([7]), Refusal("whatever it says then"))
    engine = await start(llm)
    generator = generated(engine, Generation("one", (5,), Sampling(9)))
    await anext(generator)
    llm.errored = True
    with pytest.raises(EngineUnavailable, match="has to be restarted"):
        await anext(generator)
    with pytest.raises(EngineUnavailable, match="has to be restarted"):
        await engine.check()
    assert [record.getMessage() for record in caplog.records].count("vLLM's engine core died") == 1


async def test_every_field_of_the_sampling_is_passed_on(start: Start) -> None:
    llm = Llm(output([7], "stop", [{7: SimpleNamespace(logprob=-0.5)}]))
    engine = await start(llm)
    await sampled(engine, Sampling(9, 0.5, 0.4, (3,), 2, 0.1, 0.2, 0.3, 1.1, seed=4, logprobs=1, structural_tag="{}"))
    asked = vars(llm.asked[-1][1])
    assert asked == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.4,
        "top_k": 2,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "stop_token_ids": [3],
        "ignore_eos": True,
        "seed": 4,
        "logprobs": 1,
        "structured_outputs": SimpleNamespace(structural_tag="{}"),
        "detokenize": False,
        "output_kind": "delta",
    }


@pytest.mark.parametrize("tracing", [True, False])
async def test_every_field_of_the_generation_is_passed_on(start: Start, tracing: bool) -> None:
    llm = Llm(output([7], "stop"), tracing=tracing)
    engine = await start(llm)
    for _ in range(2):
        await sampled(engine, cache_salt="salt", priority=-2, trace=(("traceparent", "00"),))
    (prompt, _, first, options), (_, _, second, _) = llm.asked[1:]
    assert prompt == ([5, 6], "salt")
    assert options == {
        "trace_headers": {"traceparent": "00"} if tracing else None,
        "priority": -2,
        "reasoning_ended": True,
    }
    assert first.startswith("one-")
    assert first != second


@pytest.mark.parametrize(
    ("args", "options", "id", "context"),
    [
        ({}, {}, "a/model", 4096),
        ({"max_model_len": 2048}, {"served_as": "gpt"}, "gpt", 2048),
        ({}, {"context_tokens": 1024}, "a/model", 1024),
        ({}, {"context_tokens": 8192}, "a/model", 4096),
    ],
)
async def test_the_model_is_what_vllm_says_it_serves(
    start: Start, args: dict[str, Any], options: dict[str, Any], id: str, context: int
) -> None:
    engine = await start(Llm(), args, **options)
    assert (engine.model.id, engine.model.context_tokens) == (id, context)
    assert engine.model.defaults == Defaults(temperature=0.6, top_k=20)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"max-model-len": 1}, "vLLM has no engine argument 'max-model-len'; did you mean 'max_model_len'"),
        ({"zzz": 1}, "vLLM has no engine argument 'zzz'$"),
        ({"model": "other"}, "HARMONIUM_LOCAL_MODEL"),
    ],
)
async def test_an_argument_that_vllm_does_not_know_is_refused(start: Start, args: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineUnavailable, match=words):
        await start(Llm(), args)


async def test_an_engine_whose_first_token_does_not_come_is_stopped(start: Start) -> None:
    llm = Llm(RuntimeError("out of memory"))
    llm.asked = [(None, None, "", {})]
    with pytest.raises(EngineUnavailable, match="vLLM does not start: vLLM failed: out of memory"):
        await start(llm)
    assert llm.stopped == 1


@pytest.mark.skipif(is_installed(), reason="vLLM is installed here")
async def test_where_vllm_is_not_installed_the_error_says_what_to_do() -> None:
    with pytest.raises(EngineUnavailable, match=r"No module named 'vllm.*install harmonium\[vllm\]"):
        await VllmLocalEngine("a/model", {}).start()


def test_what_has_no_probability_has_the_least() -> None:
    given = {5: SimpleNamespace(logprob=-0.1), 6: SimpleNamespace(logprob=-math.inf)}
    (read,) = library.read_logprobs(output([5], logprobs=[given]).outputs[0], 2)
    assert read.top[1] == (6, LEAST_LOGPROB)


async def test_children_never_see_what_a_terminal_sends(start: Start) -> None:
    masks: list[set[int]] = []

    class Watched(Llm):
        def from_engine_args(self, args: EngineArgs) -> Llm:
            masks.append(_blocked_in_a_child())
            return super().from_engine_args(args)

    await start(Watched())
    assert masks == [set(library.TERMINAL_SIGNALS)]
    assert await asyncio.to_thread(_blocked_in_a_child) == set()


def _blocked_in_a_child() -> set[int]:
    program = "import signal; print(*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {signal.Signals(int(each)) for each in result.stdout.split()}
