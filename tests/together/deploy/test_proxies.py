"""docs/deploy.md: each block in the real server, before a real service: what it streams, lets through and stops."""

import json
import re
import ssl
from collections.abc import Iterator

import httpx
import pytest

from service.commands.serve import KEEP_ALIVE_SECONDS
from service.features.sockets.connection import OPEN_SECONDS
from service.process import Settings
from tests.support.deploy.proxies import COMMANDS, PAGE, Proxy, proxy
from tests.support.documents import block
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.service.sending import send_all_then_read
from tests.support.service.sockets import socket
from tests.support.waiting import wait_until

TOKENS_A_SECOND = 40
LONG = {"model": MODEL, "input": "Count to 900."}
"""Takes longer than any test."""

AUTHORIZED = {"authorization": f"Bearer {ACME_KEY}"}
SECONDS = 20.0


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The service that all proxies stand before."""
    service = ServiceProcess(
        tmp_path_factory.mktemp("behind"),
        api_keys=f"acme:{ACME_KEY},globex:{GLOBEX_KEY}",
        metrics_key=GLOBEX_KEY[::-1],
        demo_tokens_per_second=TOKENS_A_SECOND,
        shutdown_seconds=1,
    )
    yield service
    service.stop()


@pytest.fixture(scope="module", params=COMMANDS)
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, behind: ServiceProcess
) -> Iterator[Proxy]:
    with proxy(request.param, tmp_path_factory.mktemp(request.param), behind.port) as running:
        yield running


@pytest.fixture
def http(front: Proxy) -> Iterator[httpx.Client]:
    """A client that trusts the proxy's certificate, and nobody else's."""
    with httpx.Client(
        base_url=front.url, verify=trusting(front), headers=AUTHORIZED, timeout=SECONDS, trust_env=False
    ) as client:
        yield client


def trusting(front: Proxy) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(front.authority))


def under_way(service: ServiceProcess) -> float:
    """Requests that the service itself works on."""
    return scraped(service.http(GLOBEX_KEY[::-1])).value("harmonium_requests_in_progress")


def test_every_request_is_answered_although_one_of_two_servers_is_gone(http: httpx.Client) -> None:
    first = http.post("/v1/responses", json={"model": MODEL, "input": "My name is Ada.", "max_output_tokens": 16})
    assert first.status_code == 200, first.text
    for _ in range(6):
        assert http.get(f"/v1/responses/{first.json()['id']}").json()["id"] == first.json()["id"]
        refused = http.post("/v1/responses", json={"model": MODEL})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


def test_tokens_come_while_the_rest_is_made_and_who_hangs_up_stops_it(
    http: httpx.Client, behind: ServiceProcess
) -> None:
    with http.stream("POST", "/v1/responses", json={**LONG, "stream": True}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines, seen = stream.iter_lines(), list[str]()  # kept, as the stream is closed with its lines
        for line in lines:
            seen.append(line)
            if sum('.delta"' in each for each in seen) == 5:
                break
        else:
            pytest.fail(f"it ended before its fifth delta: {seen[-6:]}")
        assert under_way(behind) == 1, "they came before the end"
    wait_until(lambda: under_way(behind), SECONDS, "the service goes on", wanted=lambda count: count == 0)


async def test_a_websocket_goes_through(front: Proxy) -> None:
    async with socket(front.url, ssl=trusting(front), additional_headers=AUTHORIZED) as connection:
        first = await connection.answer("My name is Ada.", max_output_tokens=20)
        assert first["status"] == "incomplete"
        second = await connection.answer("Count to 3.", previous_response_id=first["id"])
        assert second["status"] == "completed"


@pytest.mark.parametrize(("key", "status"), [(ACME_KEY, 413), ("sk-nobodys-0123456789", 401)])
def test_a_body_that_is_too_large_is_refused_by_harmonium(http: httpx.Client, key: str, status: int) -> None:
    body = json.dumps({"model": MODEL, "input": "x" * (Settings().max_body_bytes + 1000)})
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    refused = http.post("/v1/responses", content=body, headers=headers)
    assert (refused.status_code, set(refused.json())) == (status, {"error"})


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("key", "status"), [(ACME_KEY, 413), ("sk-nobodys-0123456789", 401)])
@pytest.mark.parametrize("size", [Settings().max_body_bytes + 1, 20_000_000])
def test_who_sends_all_of_a_body_before_it_reads_has_harmonium_s_refusal(
    front: Proxy, key: str, status: int, size: int, chunked: bool
) -> None:
    also = {"authorization": f"Bearer {key}"} | ({} if chunked else {"content-length": str(size)})
    told, message = send_all_then_read(front.url, size, "/v1/responses", also, trusting(front))
    assert told == status
    assert message


@pytest.mark.parametrize("name", COMMANDS)
def test_it_waits_for_longer_than_an_answer_takes_and_keeps_connections_for_less_than_harmonium(name: str) -> None:
    text, settings = block(PAGE, name), Settings()
    waits = {
        "caddy": r"response_header_timeout (\d+)s",
        "nginx": r"proxy_read_timeout (\d+)s",
        "haproxy": r"timeout server (\d+)s",
    }
    keeps = {"caddy": r"keepalive (\d+)s", "nginx": r"keepalive_timeout (\d+)s", "haproxy": r"pool-purge-delay (\d+)s"}
    (waited,), (kept,) = re.findall(waits[name], text), re.findall(keeps[name], text)
    assert int(waited) > settings.request_seconds + settings.store_patience_seconds
    assert int(kept) < KEEP_ALIVE_SECONDS
    if name == "haproxy":
        (tunnel,) = re.findall(r"timeout tunnel (\d+)s", text)
        assert int(tunnel) > OPEN_SECONDS, "a WebSocket's time"
