"""A service whose slots are all taken: who waits is served in turn, and nobody else waits for that."""

import socket as sockets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import InternalServerError, OpenAI

from tests.support.service.process import MODEL, ServiceProcess, raw_request
from tests.support.service.scraped import scraped
from tests.support.waiting import wait_until

HI: dict[str, Any] = {"model": MODEL, "input": "hi"}
LONG = "Count to 5000."
WAITING = "harmonium_requests_waiting"


def held(service: ServiceProcess, **body: object) -> sockets.socket:
    """A connection with a request that takes the one slot, and has begun to be answered."""
    connection = sockets.create_connection(("127.0.0.1", service.port), timeout=30)
    connection.sendall(raw_request(stream=True, **body))
    assert connection.recv(1)
    return connection


def waiting(service: ServiceProcess, how_many: int) -> None:
    http = service.http()
    wait_until(lambda: scraped(http).value(WAITING), 20, wanted=lambda found: found == how_many)


def asked(service: ServiceProcess) -> OpenAI:
    """A client with connections of its own, so that it may wait beside others."""
    return OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    process = ServiceProcess(
        tmp_path_factory.mktemp("full"), max_concurrent_requests=1, queue_seconds=60, demo_tokens_per_second=50
    )
    yield process
    process.stop()


def test_a_request_waits_for_a_slot_while_others_look_and_cancel(service: ServiceProcess) -> None:
    client = service.client()
    made = client.responses.create(model=MODEL, input=LONG, background=True)
    with ThreadPoolExecutor(1) as aside, asked(service) as patient, held(service, input=LONG) as connection:
        last = aside.submit(lambda: patient.responses.create(**HI))
        waiting(service, 1)
        assert client.responses.retrieve(made.id).id == made.id
        assert client.responses.cancel(made.id).status == "cancelled"
        assert client.models.list().data
        assert client.responses.input_tokens.count(**HI).input_tokens
        assert not last.done()
        connection.close()
        assert last.result(30).status == "completed"


def test_a_client_that_leaves_while_it_waits_is_seen_at_once(service: ServiceProcess) -> None:
    with held(service, input=LONG):
        with sockets.create_connection(("127.0.0.1", service.port), timeout=30) as impatient:
            impatient.sendall(raw_request())
            waiting(service, 1)
        waiting(service, 0)
        wait_until(lambda: "status=499" in service.log)
    assert service.client().responses.create(**HI).status == "completed"
    assert "Traceback" not in service.log


def test_a_service_that_stops_refuses_those_that_wait_and_ends_the_rest(start: Callable[..., ServiceProcess]) -> None:
    service = start(max_concurrent_requests=1, queue_seconds=600, demo_tokens_per_second=20)
    with ThreadPoolExecutor(1) as aside, asked(service) as patient, held(service, input="Count to 60.") as connection:
        last = aside.submit(lambda: patient.responses.create(**HI))
        waiting(service, 1)
        service.ask_to_stop()
        with pytest.raises(InternalServerError, match="is stopping") as refused:
            last.result(20)
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"] == "1"
        assert b"response.completed" in connection.makefile("rb").read()
    assert service.wait() == 0
    assert "Traceback" not in service.log
