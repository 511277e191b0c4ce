"""What a client makes of answers that are none of harmonium's, that break off, or never end: of a hostile server."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from service.features.client.errors import ClientError, RefusedByService, ServiceUnreachable
from service.features.client.profile import Profile
from service.features.client.service import ClientBounds, RemoteService
from tests.support.service.commands import run

Server = Callable[..., str]
EVENT = {"type": "response.created", "response": {"id": "resp_1234"}, "sequence_number": 0}
DELTA = {"type": "response.output_text.delta", "delta": "one", "sequence_number": 1}
DONE = {"type": "response.completed", "response": {"id": "resp_1234", "status": "completed"}, "sequence_number": 2}


def stream(*events: object) -> bytes:
    alive = {"type": "keepalive", "sequence_number": 0}
    sent = "".join(
        f"event: x\ndata: {json.dumps(each)}\n\n: keep-alive\n\n" for event in events for each in (event, alive)
    )
    return f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{sent}".encode()


def answer(status: str, body: str, *headers: str) -> bytes:
    head = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status}\r\n{head}content-length: {len(body.encode())}\r\n\r\n{body}".encode()


@pytest.fixture
def serving() -> Generator[Server]:
    """Serves these answers, one for a connection and the last again and again; gives the URL."""
    servers: list[socketserver.TCPServer] = []

    def serve(*answers: bytes) -> str:
        left = list(answers)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                length = 0
                while (line := self.rfile.readline().strip()) != b"":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                self.rfile.read(length)
                self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

        server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def client(url: str, silence_seconds: float = 10.0) -> RemoteService:
    """A client that reads little, and waits for so long."""
    return RemoteService(
        Profile(url, None, None), ClientBounds(silence_seconds, answer_bytes=1_000, resume_seconds=0.001)
    )


def test_a_refusal_is_told_though_the_rest_of_the_request_was_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(answer("413 Too Large", '{"error": {"message": "Send less."}}'))

        refusing = threading.Thread(target=refuse)
        refusing.start()
        with pytest.raises(RefusedByService, match="Send less"):
            client(f"http://127.0.0.1:{server.getsockname()[1]}").call("POST", "/", {"long": 50_000_000 * "x"})
        refusing.join()


def test_a_file_that_breaks_off_is_told(serving: Server, tmp_path: Path) -> None:
    with pytest.raises(ServiceUnreachable, match="4 more expected"):
        client(serving(answer("200 OK", "whole part")[:-4])).download("/v1/files/file-1/content", tmp_path / "file")


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (answer("502 Bad Gateway", "<html>"), 1, "Bad Gateway"),
        (answer("429 Slow", '{"error": {"message": "Wait."}}'), 4, "Wait. (HTTP 429)"),
        (answer("200 OK", "<html>"), 1, "not a JSON object"),
        (answer("200 OK", "[" * 200_000), 1, "not a JSON object"),
        (answer("302 Found", "", "location: http://elsewhere"), 1, "redirects"),
        (b"", 5, "can't reach"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 5, "can't reach"),
    ],
)
def test_an_answer_of_somebody_else_is_a_line_and_a_status(
    serving: Server, sent: bytes, status: int, words: str
) -> None:
    result = run("show", "--json", "resp_1234", "--url", serving(sent))
    assert (result.exit_code, result.stdout) == (status, "")
    assert words in result.stderr


def test_a_stream_that_ends_before_its_response_is_no_answer(serving: Server) -> None:
    result = run("ask", "-m", "m", "hi", "--url", serving(stream(EVENT, DELTA) + b'data: {"type":'))
    assert result.exit_code in (1, 5)
    assert result.stdout == "one\n"


def test_a_body_or_an_event_without_end_is_cut_off(serving: Server) -> None:
    with pytest.raises(ClientError, match="more than 1000 bytes"):
        client(serving(answer("200 OK", "x" * 2_000))).call("GET", "/")
    with pytest.raises(ClientError, match="more than 1000 bytes"):
        list(client(serving(stream(EVENT, DELTA | {"delta": "x" * 2_000}))).stream("GET", "/"))


def test_following_goes_on_behind_the_last_event_that_came(serving: Server) -> None:
    url = serving(stream(EVENT), b"", answer("503 Nope", ""), stream(DELTA), stream(DONE))
    assert list(client(url).follow("resp_1234")) == [EVENT, DELTA, DONE]
    with pytest.raises(ServiceUnreachable):
        list(client(serving(stream(EVENT), b"")).follow("resp_1234"))


ODD = {"id": 5, "data": "abc", "turns": None, "output": [1], "created_at": 10**30, "has_more": 1}


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "tree resp_1234",
        "show resp_1234 --tokens",
        "log resp_1234",
        "diff resp_1234 resp_5678",
        "export --all",
        "jobs",
    ],
)
def test_an_answer_of_another_shape_is_a_line_and_a_status(serving: Server, command: str) -> None:
    for body in ({}, ODD):
        result = run(*command.split(), "--url", serving(answer("200 OK", json.dumps(body))))
        assert isinstance(result.exception, SystemExit)
        assert (result.exit_code, "not an answer of harmonium: " in result.stderr) == (1, True)


def test_a_lone_surrogate_is_sent_as_a_question_mark(serving: Server) -> None:
    assert run("ask", "-m", "m", "\ud800", "--url", serving(stream(EVENT, DONE))).exit_code == 0


def test_a_file_whose_name_is_no_text_is_sent(serving: Server, tmp_path: Path) -> None:
    file = tmp_path / "caf\udce9.jsonl"
    file.write_bytes(b"{}")
    assert client(serving(answer("200 OK", '{"id": "file-1"}'))).upload("/v1/files", file, purpose="batch")
