"""The engine with vLLM in this process, with a stand-in that says whatever vLLM can say. Needs no vLLM."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, Protocol

import pytest

from service.engine.port import (
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
from service.features.vllm_local import local
from service.features.vllm_local.local import VllmLocalEngine
from tests.support.engine.generating import generated
from tests.support.engine.local_standin import Llm, Overload, Refusal, WatchedLocal, is_installed, output, vllm


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
        (Overload("later"), EngineOverloaded, "vLLM is full: later"),
        (RuntimeError("x" * 9999), EngineError, "^vLLM failed: x{500}$"),
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


@pytest.mark.parametrize(
    ("args", "options", "id", "context"),
    [
        ({"max_model_len": 2048}, {"served_as": "gpt"}, "gpt", 2048),
        ({}, {"context_tokens": 1024}, "a/model", 1024),
    ],
)
async def test_the_model_is_what_vllm_says_it_serves(
    start: Start, args: dict[str, Any], options: dict[str, Any], id: str, context: int
) -> None:
    engine = await start(Llm(), args, **options)
    assert (engine.model.id, engine.model.context_tokens) == (id, context)
    assert engine.model.defaults == Defaults(temperature=0.6, top_k=20)


async def test_an_argument_that_vllm_does_not_know_is_refused(start: Start) -> None:
    with pytest.raises(EngineUnavailable, match="no engine argument 'max-model-len'; did you mean 'max_model_len'"):
        await start(Llm(), {"max-model-len": 1})


async def test_an_engine_whose_first_token_does_not_come_is_stopped(start: Start) -> None:
    llm = Llm(RuntimeError("out of memory"))
    llm.asked = [(None, None, "", {})]
    with pytest.raises(EngineUnavailable, match="vLLM does not start: vLLM failed: out of memory"):
        await start(llm)
    assert llm.stopped == 1


@pytest.mark.skipif(is_installed(), reason="vLLM is installed here")
async def test_where_vllm_is_not_installed_the_error_says_what_to_do() -> None:
    with pytest.raises(EngineUnavailable, match=r"No module named 'vllm.*install harmonium with the extra vllm "):
        await VllmLocalEngine("a/model", {}).start()
