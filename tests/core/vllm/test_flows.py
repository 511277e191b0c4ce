"""Whole flows through `harmonium serve` before a real vLLM server, with the official SDK.

The talker's answers are the same every time at temperature 0, so they are compared word for word.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.support.service.process import ACME_KEY, GLOBEX_KEY, CoreProcess, ServiceProcess
from tests.support.vllm.server import MODEL, metric
from tests.support.waiting import wait_until

pytestmark = pytest.mark.vllm

ABORT_SECONDS = 2.0
"""How long the server may go on after its client's client has gone; it is 30 ms on a quiet machine."""

SECONDS = 20.0
LONG_TOKENS = 256
"""Of a prompt that fills some blocks of the prefix cache, whatever their size."""


@pytest.fixture(scope="module")
def service(vllm_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The service before the server, for two tenants of whom it has never heard before."""
    run = uuid.uuid4().hex
    keys = f"acme-{run}:{ACME_KEY},globex-{run}:{GLOBEX_KEY}"
    process = CoreProcess(tmp_path_factory.mktemp("service"), engine="vllm", engine_url=vllm_url, api_keys=keys)
    yield process
    process.stop()


@pytest.fixture
def client(service: ServiceProcess) -> OpenAI:
    return service.client(ACME_KEY)


def counted(url: str, *names: str) -> list[float]:
    """The counts of a vLLM server by these names."""
    exposed = httpx.get(f"{url}/metrics", timeout=SECONDS, trust_env=False).text
    return [metric(exposed, f"vllm:{name}") for name in names]


def running(url: str) -> float:
    """How many generations are under way, waiting ones included."""
    return sum(counted(url, "num_requests_running", "num_requests_waiting"))


def ask(client: OpenAI, said: Any, after: Any = None, **more: Any) -> Any:
    """The response to a text or items, after another response where one is given."""
    previous = after.id if after else None
    return client.responses.create(model=MODEL, input=said, previous_response_id=previous, temperature=0, **more)


def test_usage_is_what_the_server_counts(client: OpenAI, vllm_url: str) -> None:
    wait_until(lambda: running(vllm_url) == 0, SECONDS)  # what an earlier test has left
    names = ("prompt_tokens_total", "generation_tokens_total")
    before = counted(vllm_url, *names)
    usage = ask(client, "Count to 20.").usage
    grown = [now - was for now, was in zip(counted(vllm_url, *names), before, strict=True)]
    assert [usage.input_tokens, usage.output_tokens] == grown
    assert usage.output_tokens_details.reasoning_tokens > 0


def test_cached_prefixes_are_a_tenant_s_own(service: ServiceProcess) -> None:
    acme, globex = service.client(ACME_KEY), service.client(GLOBEX_KEY)

    def cached(client: OpenAI) -> int:
        said = "sea " * LONG_TOKENS
        return ask(client, said, max_output_tokens=16).usage.input_tokens_details.cached_tokens

    cached(acme)
    assert cached(acme) >= LONG_TOKENS
    assert cached(globex) == 0
    assert cached(globex) >= LONG_TOKENS


def test_closing_a_stream_stops_the_server_s_work(service: ServiceProcess, client: OpenAI, vllm_url: str) -> None:
    wait_until(lambda: running(vllm_url) == 0, SECONDS)
    stream = ask(client, "Count to 300.", stream=True)
    created = next(stream)
    assert any(event.type == "response.output_text.delta" for event in stream)
    assert running(vllm_url) == 1
    stream.close()
    wait_until(lambda: running(vllm_url) == 0, ABORT_SECONDS)
    path = f"/v1/responses/{created.response.id}"
    wait_until(lambda: service.http(ACME_KEY).get(path).status_code == 200)
    stored = client.responses.retrieve(created.response.id)
    assert stored.status == "cancelled"
    assert stored.output_text.startswith("1")
