"""TensorRT-LLM over HTTP: what becomes of tenants, of servers that lack something, and of who hangs up."""

import pytest

from service.configured_engines import open_engine
from service.engine.port import EngineRefused, EngineUnavailable, Sampling
from service.harmony.tokens import STOPS
from service.settings.settings import load_settings
from tests.support.engine.conformance_sampling import YES_OR_NO
from tests.support.engine.connected import ask, connected, failure, generation, scripted
from tests.support.engine.hooks import complete
from tests.support.tensorrt.standin import tensorrt

CONTEXT = 4096
PROMPT = list(range(200))


async def test_a_server_that_reuses_prompts_serves_one_tenant() -> None:
    async with tensorrt(scripted()) as server, connected(server, context_tokens=CONTEXT) as engine:
        assert [(await ask(engine, prompt=PROMPT)).cached_tokens for _ in range(2)] == [0, 192]
        with pytest.raises(EngineRefused, match="leave out cache_salt"):
            await ask(engine, cache_salt="own")


async def test_a_server_that_reuses_prompts_does_not_serve_several() -> None:
    async with tensorrt(scripted(), shared=True) as server, connected(server, context_tokens=CONTEXT) as engine:
        assert "enable_block_reuse: false" in str(await failure(engine))
        server.reuses = False
        await engine.check()
        salts = ("a", "a", "b")
        assert [(await ask(engine, prompt=PROMPT, cache_salt=salt)).cached_tokens for salt in salts] == [0, 0, 0]


async def test_projects_are_several_tenants_before_anybody_has_made_one() -> None:
    async with tensorrt(scripted()) as server:
        before = {"engine": "tensorrt", "engine_url": server.url, "context_tokens": CONTEXT}
        engine = open_engine(load_settings(admin_key="an-administrators-key-of-tests", **before))
        await engine.start()
        try:
            with pytest.raises(EngineUnavailable, match="can't keep those of tenants apart"):
                await complete(engine, generation())
        finally:
            await engine.close()


@pytest.mark.parametrize(
    ("traits", "reason"),
    [
        ({"gives_ids": False}, "gives no token ids"),
        ({"says_cached": False, "shared": True}, "can't keep those of tenants apart"),
        ({"postprocess_workers": 2}, "logit_bias requires a tokenizer"),
    ],
)
async def test_a_server_that_can_not_do_it_is_never_up_and_says_why(traits: dict[str, object], reason: str) -> None:
    async with tensorrt(scripted(), **traits) as server, connected(server, context_tokens=CONTEXT) as engine:
        error = await failure(engine)
        assert isinstance(error, EngineUnavailable)
        assert reason in str(error)
        assert server.generations == []


async def test_a_server_without_a_back_end_for_constraints_says_so() -> None:
    async with tensorrt(scripted(), guided=False) as server, connected(server, context_tokens=CONTEXT) as engine:
        error = await failure(engine, sampling=Sampling(9, stop_ids=STOPS, structural_tag=YES_OR_NO))
        assert isinstance(error, EngineRefused)
        assert "Guided decoding is not enabled" in str(error)
