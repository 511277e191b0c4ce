"""Who may enter, and that one tenant's conversations don't exist for another."""

import socket
from collections.abc import Callable

import httpx
import openai
import pytest

from service.errors import ApiError
from service.web.auth import check_headers, refuse_foreign
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess

UNKNOWN = "resp_" + "0" * 46 + "aa"
REQUESTS = {
    "retrieve": ("GET", "/v1/responses/{}", None),
    "delete": ("DELETE", "/v1/responses/{}", None),
    "cancel": ("POST", "/v1/responses/{}/cancel", None),
    "input_items": ("GET", "/v1/responses/{}/input_items", None),
    "continue": ("POST", "/v1/responses", {"model": MODEL, "input": "hi", "previous_response_id": "{}"}),
    "stream": ("POST", "/v1/responses", {"model": MODEL, "input": "hi", "stream": True, "previous_response_id": "{}"}),
}


def asked(http: httpx.Client, what: str, id: str) -> httpx.Response:
    method, path, body = REQUESTS[what]
    if body is not None:
        body = {name: id if value == "{}" else value for name, value in body.items()}
    return http.request(method, path.format(id), json=body)


@pytest.mark.parametrize("what", REQUESTS)
def test_a_stranger_s_response_is_exactly_as_unknown_as_one_that_never_was(tenants: ServiceProcess, what: str) -> None:
    acme = tenants.client(ACME_KEY)
    id = acme.responses.create(model=MODEL, input="My name is Ada.").id
    globex = tenants.http(GLOBEX_KEY)
    foreign, unknown = asked(globex, what, id), asked(globex, what, UNKNOWN)
    assert foreign.status_code == unknown.status_code
    assert foreign.status_code in (400, 404)
    assert foreign.content.replace(id.encode(), UNKNOWN.encode()) == unknown.content
    own = {"x-request-id", "openai-processing-ms", "date"}
    assert {name: value for name, value in foreign.headers.items() if name not in own} == {
        name: value for name, value in unknown.headers.items() if name not in own
    }
    assert acme.responses.retrieve(id).id == id


def test_an_item_of_a_stranger_is_no_place_to_list_from(tenants: ServiceProcess) -> None:
    theirs = tenants.client(ACME_KEY).responses.create(model=MODEL, input="hi").output[0].id
    globex = tenants.client(GLOBEX_KEY)
    own = globex.responses.create(model=MODEL, input="hi").id
    with pytest.raises(openai.BadRequestError) as refusal:
        globex.responses.input_items.list(own, after=theirs)
    assert refusal.value.param == "after"


def test_two_keys_of_which_each_opens_something_open_nothing(tenants: ServiceProcess) -> None:
    acme = {"authorization": f"Bearer {ACME_KEY}"}
    for path, key in (("/v1/models", GLOBEX_KEY), ("/v1/messages", "none")):
        answer = httpx.get(f"{tenants.url}{path}", headers={**acme, "x-api-key": key}, trust_env=False)
        assert answer.status_code == 401
        assert "have different API keys" in answer.text
    same = {**acme, "x-api-key": ACME_KEY}
    assert httpx.get(f"{tenants.url}/v1/models", headers=same, trust_env=False).status_code == 200


@pytest.mark.parametrize("key", ["sk-acme-012345678", "sk-acme-01234567890", "none", "é", "x" * 10_000])
def test_a_wrong_key_opens_nothing(tenants: ServiceProcess, key: str) -> None:
    headers = [(b"authorization", b"Bearer " + key.encode())]
    answer = httpx.get(f"{tenants.url}/v1/models", headers=headers, trust_env=False)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/ready", 200),
        ("GET", "/metrics", 401),
        ("PUT", "/v1/responses", 401),
        ("GET", "/v1/nothing", 401),
    ],
)
def test_probes_and_pages_alone_need_no_key(tenants: ServiceProcess, method: str, path: str, status: int) -> None:
    assert tenants.http().request(method, path).status_code == status


def test_without_keys_a_foreign_host_header_is_refused_and_this_machine_s_names_are_fine(
    service: ServiceProcess,
) -> None:
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"):
        answer = service.http().get("/v1/models", headers={"host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed"), host
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", "[::1]:8000", "[::1]"):
        assert service.http().get("/v1/models", headers={"host": host}).status_code == 200, host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 404),
        ({"origin": "http://evil.example"}, 415),
        ({"origin": "null"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-length": "2"}, 415),
        ({"transfer-encoding": "chunked"}, 415),
    ],
    ids=str,
)
def test_without_keys_a_bare_post_is_from_no_web_page_and_what_one_could_send_is_refused(
    service: ServiceProcess, headers: dict[str, str], status: int
) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /v1/responses/{UNKNOWN}/cancel HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as raw:
        raw.sendall(request.encode())
        assert raw.recv(12) == f"HTTP/1.1 {status}".encode()


def test_without_keys_a_form_with_a_file_is_taken_of_a_program_and_of_no_web_page() -> None:
    headers = {b"host": b"localhost", b"content-type": b"multipart/form-data; boundary=b"}
    refuse_foreign("POST", headers, uploads=True)
    for more, uploads in (({b"origin": b"http://evil.example"}, True), ({}, False)):
        with pytest.raises(ApiError, match="Content-Type"):
            refuse_foreign("POST", headers | more, uploads=uploads)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("transfer-encoding: Chunked", 404),
        ("transfer-encoding: gzip, chunked", 501),
        ("transfer-encoding: gzip\r\ntransfer-encoding: chunked", 501),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", 400),
    ],
)
def test_a_transfer_encoding_that_nobody_undoes_is_not_served_and_nothing_behind_it_is_read(
    tenants: ServiceProcess, lines: str, status: int
) -> None:
    head = f"POST /v1/responses/{UNKNOWN}/cancel HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ACME_KEY}\r\n"
    request = f"{head}content-type: application/json\r\n{lines}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
    behind = "GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", tenants.port), timeout=10) as raw:
        raw.sendall((request + behind).encode())
        answers = b"".join(iter(lambda: raw.recv(1 << 16), b""))
    statuses = [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == ([404, 200] if status == 404 else [status])


def test_a_packed_body_is_not_served() -> None:
    scope = {"headers": [(b"host", b"a"), (b"content-encoding", b"gzip")], "http_version": "1.1"}
    with pytest.raises(ApiError, match="Content-Encoding 'gzip'"):
        check_headers(scope)


def test_keys_and_words_stay_out_of_the_log(start: Callable[..., ServiceProcess]) -> None:
    quiet = start(api_keys="acme:sk-tell-nobody", log_level="debug")
    quiet.client("sk-tell-nobody").responses.create(model=MODEL, input="The secret word is marmalade.")
    assert quiet.http("sk-wrong-key").get("/v1/models").status_code == 401
    quiet.stop()
    assert "resp_" in quiet.log
    for secret in ("sk-tell-nobody", "sk-wrong-key", "marmalade"):
        assert secret not in quiet.log
