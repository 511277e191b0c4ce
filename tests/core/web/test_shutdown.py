"""SIGTERM: what is open finishes, what is new is refused, and nothing is lost."""

import socket
from collections.abc import Callable
from typing import Any

from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.streams import parsed
from tests.support.waiting import wait_until

Start = Callable[..., ServiceProcess]


def refuses(service: ServiceProcess) -> bool:
    """Whether a new connection is refused, or was reset as the port closed."""
    try:
        socket.create_connection(("127.0.0.1", service.port), timeout=1).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


def open_stream(service: ServiceProcess, **body: Any) -> Any:
    return service.http().stream("POST", "/v1/responses", json={"model": MODEL, "stream": True, **body})


def test_an_open_stream_finishes_while_new_connections_are_refused(start: Start) -> None:
    service = start(demo_tokens_per_second=20)
    with open_stream(service, input="Count to 50.") as answer:
        pieces = answer.iter_text()
        body = next(pieces)
        service.ask_to_stop()
        wait_until(lambda: refuses(service))
        assert service.process.poll() is None
        body += "".join(pieces)
    assert parsed(body)[-1]["type"] == "response.completed"
    assert service.wait() == 0
    assert "Traceback" not in service.log
    service.start()
    id = parsed(body)[-1]["response"]["id"]
    assert service.http().get(f"/v1/responses/{id}").json() == parsed(body)[-1]["response"]


def test_a_stream_that_outlives_its_time_is_cut_and_what_was_said_is_kept(start: Start) -> None:
    service = start(demo_tokens_per_second=100, shutdown_seconds=1)
    with open_stream(service, input="Count to 1000.") as answer:
        lines = answer.iter_lines()
        id = next(line for line in lines if "resp_" in line).partition('"id":"')[2].partition('"')[0]
        next(line for line in lines if "output_text.delta" in line)
        service.ask_to_stop()
        assert service.wait() == 0
    service.start()
    kept = service.http().get(f"/v1/responses/{id}").json()
    assert kept["status"] == "cancelled"
    assert kept["output"][-1]["content"][0]["text"].startswith("1\n2")
