"""The stand-in of the other tests against a real server: what it says, the real one says too, in the same shape.

It may say less: only what an adapter could trip over is kept of an answer.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import msgspec
import pytest

from service.engine.port import Generation, Sampling
from service.engine.servers.answer import DONE
from service.engine.vllm.servers import TokensEndpoint, request_body
from service.harmony.tokens import LAST_LEGAL, STOPS
from tests.support.engine.connected import CARD, scripted
from tests.support.engine.prompts import prompt, user
from tests.support.engine.standin import standing_in
from tests.support.service.inside import answer

pytestmark = pytest.mark.vllm

NUMBERS = answer("\n".join(map(str, range(1, 31))))
COUNT = prompt(user("Count to 30."))
PROBES: dict[str, tuple[str, str, object]] = {
    "health": ("GET", "/health", None),
    "version": ("GET", "/version", None),
    "models": ("GET", "/v1/models", None),
    "defaults": ("POST", "/v1/completions/render", {"prompt": [0]}),
    "an endpoint without a prompt": ("POST", TokensEndpoint.GENERATE, {}),
}
GENERATIONS: dict[str, tuple[list[int], dict[str, Any], str]] = {
    "tokens": (COUNT, {}, CARD.id),
    "log probabilities": (COUNT, {"logprobs": 2}, CARD.id),
    "a malformed tag": (COUNT, {"structural_tag": "{"}, CARD.id),
    "another model": (COUNT, {}, "babbler"),
    "an illegal id": ([LAST_LEGAL + 1], {}, CARD.id),
    "a long prompt": ([1] * (CARD.context_tokens + 1), {}, CARD.id),
}


@pytest.fixture
async def pair(vllm_url: str) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """A client of a stand-in, and one of a real server."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(standing_in(scripted([NUMBERS]), version="0.32.0"))
        standin, real = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False, timeout=30))
            for url in (server.url, vllm_url)
        ]
        yield standin, real


Pair = tuple[httpx.AsyncClient, httpx.AsyncClient]


@pytest.mark.parametrize("probe", PROBES)
async def test_a_probe_is_answered_as_a_real_server_does(pair: Pair, probe: str) -> None:
    method, path, body = PROBES[probe]
    standin, real = [await client.request(method, path, json=body) for client in pair]
    assert standin.status_code == real.status_code
    if real.content:
        assert standin.headers["content-type"].startswith("application/json")
        assert missing(standin.json(), real.json()) == []


@pytest.mark.parametrize("endpoint", TokensEndpoint)
@pytest.mark.parametrize("asked", GENERATIONS)
async def test_a_generation_is_answered_as_a_real_server_does(pair: Pair, endpoint: TokensEndpoint, asked: str) -> None:
    ids, sampling, model = GENERATIONS[asked]
    generation = Generation("resp_1", ids, Sampling(6, 0, stop_ids=STOPS, **sampling))
    body, headers = request_body(endpoint, generation, model), {"x-request-id": "resp_1"}
    headers["content-type"] = "application/json"
    standin, real = [await client.post(endpoint, content=body, headers=headers) for client in pair]
    assert standin.status_code == real.status_code
    assert standin.headers["content-type"] == real.headers["content-type"]
    if real.status_code != 200:
        assert missing(standin.json(), real.json()) == []
        return
    ours, theirs = events(standin.content), events(real.content)
    # the first tokens, the finish and the usage, or one error; a server that is busy merges what is between
    for place in (0, max(-2, -len(theirs)), -1):
        assert missing(ours[place], theirs[place]) == []


def events(body: bytes) -> list[Any]:
    """The events of a stream, which ends with [DONE]."""
    *sent, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: " + DONE, b"")
    return [msgspec.json.decode(each.removeprefix(b"data: ")) for each in sent]


def missing(standin: Any, real: Any, path: str = "$") -> list[str]:
    """Where the stand-in says something, or something of another kind, that the real server doesn't."""
    if standin is None or real is None:
        return []
    if type(standin) is not type(real):
        return [f"{path}: {standin!r} and {real!r}"]
    if isinstance(standin, dict):
        if all(name.startswith("token_id:") for name in standin):  # it has other tokens
            return [] if all(name.startswith("token_id:") for name in real) else [path]
        unknown = [f"{path}.{name}" for name in standin if name not in real]
        known = [name for name in standin if name in real]
        return unknown + [each for name in known for each in missing(standin[name], real[name], f"{path}.{name}")]
    if isinstance(standin, list) and standin and real:
        return missing(standin[0], real[0], f"{path}[0]")
    return []
