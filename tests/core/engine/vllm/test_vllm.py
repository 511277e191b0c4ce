"""The whole service before a vLLM server, which is a stand-in: what passes through, and what its troubles look like."""

import httpx

from service.engine.port import Engine, EngineUnavailable
from service.engine.servers.engine import Access, ServersEngine
from service.engine.vllm.servers import Vllm
from service.process import Settings
from service.settings.core import parse_api_keys
from tests.support.engine.standin import standing_in
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL
from tests.support.waiting import until

HELLO = [answer("Hello.")]


async def post(inside: Inside, **body: object) -> httpx.Response:
    async with inside.http() as http:
        return await http.post("/v1/responses", json={"model": MODEL, "input": "hi", **body})


async def cached_for(inside: Inside, key: str) -> int:
    async with inside.client(key) as client:
        usage = (await client.responses.create(model=MODEL, input="hi")).usage
    assert usage
    return usage.input_tokens_details.cached_tokens


async def test_tenants_never_share_cached_prefixes(settings: Settings) -> None:
    keys, secret = parse_api_keys(f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"), type(settings.engine_api_key)
    async with standing_in(scripted(HELLO), api_key="sk-engine") as server:
        before = {"engine": "vllm", "engine_url": (server.url,), "engine_api_key": secret("sk-engine")}
        async with serving(settings.model_copy(update=before | {"api_keys": keys})) as inside:
            cached = [await cached_for(inside, key) for key in (ACME_KEY, ACME_KEY, GLOBEX_KEY)]
    assert cached[0] == cached[2] == 0 < cached[1]


async def test_a_service_starts_without_its_server_and_serves_once_it_is_there(settings: Settings) -> None:
    async with standing_in(scripted(HELLO)) as server:
        await server.die()
        adapter = ServersEngine(Vllm(), Access((server.url,), probe_seconds=0.05))
        async with serving(settings, adapter) as inside, inside.http() as http:
            ready = await http.get("/ready")
            assert (ready.status_code, ready.json()["engine"]) == (503, "unavailable")
            assert (await http.get("/health")).status_code == 200
            for answer in (await http.get("/v1/models"), await http.get(f"/v1/models/{MODEL}"), await post(inside)):
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "engine_error"
                assert answer.headers["retry-after"] == "1"
                assert "127.0.0.1" not in answer.text
            await server.start()
            await until(lambda: _knows_its_model(adapter))
            assert (await http.get("/ready")).status_code == 200
            assert (await post(inside)).status_code == 200


def _knows_its_model(engine: Engine) -> bool:
    try:
        return bool(engine.model)
    except EngineUnavailable:
        return False


async def test_a_clients_wish_beats_the_servers_default_and_either_is_echoed(settings: Settings) -> None:
    defaults = {"temperature": 0.6, "top_p": 0.9, "top_k": 20}
    async with (
        standing_in(scripted(HELLO), defaults=defaults) as server,
        serving(settings, ServersEngine(Vllm(), Access((server.url,)))) as inside,
    ):
        usual, own = (await post(inside)).json(), (await post(inside, temperature=0, top_p=0.5)).json()
        asked = [each.body["sampling_params"] for each in server.generations]
    assert [(each["temperature"], each["top_p"]) for each in (usual, own)] == [(0.6, 0.9), (0, 0.5)]
    assert [(each["temperature"], each["top_p"], each["top_k"]) for each in asked] == [(0.6, 0.9, 20), (0, 0.5, 20)]
