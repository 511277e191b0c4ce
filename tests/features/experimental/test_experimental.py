"""SGLang and TensorRT-LLM over HTTP: how SGLang's generations are ended, and what becomes of TensorRT-LLM's tenants."""

import asyncio
import json

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from service.engine.port import EngineUnavailable
from service.features.experimental.servers import (
    ABORT,
    COMPLETIONS,
    GENERATE,
    INFO,
    METRICS,
    MODEL,
    READY,
    Sglang,
    read_load,
)
from service.process import load_settings, open_engine
from tests.support.engine.connected import ask, connected, generation, hold, scripted
from tests.support.engine.hooks import complete
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.engine.standin import standing_in
from tests.support.engine.standing import Standing, as_json, healthy, standing, streaming
from tests.support.experimental.voices import EXPERIMENTAL
from tests.support.waiting import until


class SglangStandin(Standing):
    """A server whose generations go on until they are aborted, whoever hangs up."""

    def __init__(self) -> None:
        super().__init__(scripted())
        self.under_way: list[str] = []

    @property
    def kind(self) -> Sglang:
        return Sglang()

    @property
    def aborts(self) -> list[str]:
        return [each.body["rid"] for each in self.asked if each.path == ABORT]

    def add_routes(self, router: web.UrlDispatcher) -> None:
        for path in (MODEL, "/v1/models", INFO):
            router.add_get(path, self._told)
        router.add_get(READY, healthy)
        router.add_post(GENERATE, self._generate)
        router.add_post(ABORT, self._abort)

    async def _told(self, request: web.Request) -> web.Response:
        card = {"id": self.model, "max_model_len": self.context_tokens}
        return as_json({"model_type": "gpt_oss", "data": [card], "max_total_num_tokens": 4000})

    async def _abort(self, request: web.Request) -> web.Response:
        self.under_way.remove(self.aborts[-1])
        return web.Response()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        self.under_way.append(self.asked[-1].body["rid"])
        stream = await streaming(request)
        await stream.write(EXPERIMENTAL["sglang"].tokens([5], 1))
        await asyncio.Event().wait()
        return stream


async def test_an_sglang_generation_that_is_given_up_is_ended_by_its_id_and_each_request_has_the_key() -> None:
    key = "sk-engine-0123456789"
    async with (
        standing(SglangStandin(), api_key=key) as server,
        connected(server, api_key=key, probe_seconds=0.05) as engine,
    ):
        (await hold(engine)).cancel()
        await until(lambda: len(server.aborts) == 1 and not server.under_way)
        everything = {READY, MODEL, "/v1/models", GENERATE, ABORT, METRICS, INFO}
        await until(lambda: {each.path for each in server.asked} == everything)
        assert {each.headers.get("authorization") for each in server.asked} == {f"Bearer {key}"}
    async with standing(SglangStandin()) as server, connected(server) as engine:
        server.instead = {GENERATE: Instead((), 0, Then.STALL), ABORT: Instead()}
        asking = asyncio.create_task(ask(engine))
        await until(lambda: any(each.path == GENERATE for each in server.asked))
        asking.cancel()
        await until(lambda: server.aborts == [server.asked[-1].body["rid"]])
        await asyncio.wait([asking])


async def test_projects_are_several_tenants_of_tensorrt_before_anybody_has_made_one() -> None:
    cached = {"choices": [{"token_ids": [5]}], "usage": {"prompt_tokens_details": {"cached_tokens": 288}}}
    async with standing_in(scripted(), instead={COMPLETIONS: Instead((json.dumps(cached).encode(),))}) as server:
        before = {"engine": "tensorrt", "engine_url": server.url, "context_tokens": 4096}
        engine = open_engine(load_settings(admin_key="an-administrators-key-of-tests", **before))
        await engine.start()
        try:
            with pytest.raises(EngineUnavailable, match="can't keep those of tenants apart"):
                await complete(engine, generation())
        finally:
            await engine.close()


@given(st.binary(max_size=300))
def test_whatever_a_page_of_load_is_it_is_read(body: bytes) -> None:
    told = read_load(body, body)
    assert told.running >= 0
    assert 0 <= told.used <= 1
    assert told.room >= 0
