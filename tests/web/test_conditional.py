"""A response that a client has already: its ETag, and a 304 without a body as long as nothing in it changes."""

from hashlib import blake2b

import openai
import pytest
from starlette.responses import Response

from service.web.routes.stored import BYTES_A_STEP, TAG_BYTES, unless_known
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess
from tests.support.waiting import wait_until


def made(service: ServiceProcess, **options: object) -> str:
    body = {"model": MODEL, "input": "Count to 3.", **options}
    answer = service.http().post("/v1/responses", json=body)
    assert answer.status_code == 200
    return f"/v1/responses/{answer.json()['id']}"


def lines(service: ServiceProcess) -> list[str]:
    return service.log.splitlines()


def test_a_client_that_has_a_response_gets_no_body(service: ServiceProcess) -> None:
    http, path = service.http(), made(service)
    whole = http.get(path)
    assert whole.headers["cache-control"] == "private, no-cache"
    again = http.get(path, headers={"if-none-match": whole.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == whole.headers["etag"]
    assert again.headers["cache-control"] == "private, no-cache"
    assert again.headers["x-request-id"].startswith("req_")
    assert "content-type" not in again.headers
    assert http.get(path).content == whole.content


def test_the_sdk_says_that_nothing_has_changed(service: ServiceProcess) -> None:
    client, path = service.client(), made(service)
    id = path.rpartition("/")[2]
    raw = client.responses.with_raw_response.retrieve(id)
    with pytest.raises(openai.APIStatusError) as told:
        client.responses.retrieve(id, extra_headers={"If-None-Match": raw.headers["etag"]})
    assert told.value.status_code == 304


@pytest.mark.parametrize(
    ("known", "status"),
    [
        ("{tag}", 304),
        ("W/{tag}", 304),
        ('"other", W/{tag} , "third"', 304),
        ("*", 304),
        ('"other"', 200),
        ("", 200),
        ("{bare}", 200),
        ('W/"other",', 200),
        ("\xe9\xe9", 200),
    ],
)
def test_what_the_client_names_is_compared(service: ServiceProcess, known: str, status: int) -> None:
    http, path = service.http(), made(service)
    tag = http.get(path).headers["etag"]
    named = known.format(tag=tag, bare=tag.strip('"'))
    assert http.get(path, headers=[(b"if-none-match", named.encode("latin-1"))]).status_code == status


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_client_may_name_tags_in_several_headers(service: ServiceProcess, place: int) -> None:
    http, path = service.http(), made(service)
    tags = [b'"one"', b'"other"']
    tags.insert(place, http.get(path).headers["etag"].encode())
    assert http.get(path, headers=[(b"if-none-match", tag) for tag in tags]).status_code == 304
    assert http.get(path, headers=[(b"if-none-match", b'"one"'), (b"if-none-match", b'"other"')]).status_code == 200


def test_a_deleted_response_is_not_there_for_those_who_had_it(service: ServiceProcess) -> None:
    http, path = service.http(), made(service)
    tag = http.get(path).headers["etag"]
    http.delete(path).raise_for_status()
    for known in (tag, "*"):
        refused = http.get(path, headers={"if-none-match": known})
        assert refused.status_code == 404
        assert "etag" not in refused.headers


def test_a_tag_opens_nothing_to_another_tenant(tenants: ServiceProcess) -> None:
    acme, globex = tenants.http(ACME_KEY), tenants.http(GLOBEX_KEY)
    id = acme.post("/v1/responses", json={"model": MODEL, "input": "Count to 3."}).json()["id"]
    tag = acme.get(f"/v1/responses/{id}").headers["etag"]
    for known in (tag, "*"):
        assert acme.get(f"/v1/responses/{id}", headers={"if-none-match": known}).status_code == 304
        for http, status in ((globex, 404), (tenants.http(), 401)):
            refused = http.get(f"/v1/responses/{id}", headers={"if-none-match": known})
            assert (refused.status_code, "etag" in refused.headers) == (status, False)


def test_an_answer_without_a_body_is_logged_and_counted_as_such(service: ServiceProcess) -> None:
    http, path = service.http(), made(service)
    told = http.get(path, headers={"if-none-match": "*"})
    wait_until(lambda: any(told.headers["x-request-id"] in line and "status=304" in line for line in lines(service)))
    counted = http.get("/metrics").text
    assert 'harmonium_requests_total{endpoint="/v1/responses/{response_id}",method="GET",status="304"}' in counted


def test_a_response_without_one_of_its_items_is_another(service: ServiceProcess) -> None:
    http = service.http()
    conversation = http.post("/v1/conversations", json={}).json()["id"]
    path = made(service, conversation=conversation)
    whole = http.get(path)
    item = whole.json()["output"][-1]["id"]
    http.delete(f"/v1/conversations/{conversation}/items/{item}?erase=true").raise_for_status()
    erased = http.get(path, headers={"if-none-match": whole.headers["etag"]})
    assert erased.status_code == 200
    assert item not in erased.text
    assert erased.headers["etag"] != whole.headers["etag"]


def test_a_response_under_way_is_another_once_it_has_gone_on(service: ServiceProcess) -> None:
    http = service.http()
    path = made(service, background=True)
    begun = http.get(path)
    tag, status = begun.headers["etag"], begun.json()["status"]
    while status in ("queued", "in_progress"):
        polled = http.get(path, headers={"if-none-match": tag})
        if polled.status_code == 200:
            assert polled.headers["etag"] != tag
            tag, status = polled.headers["etag"], polled.json()["status"]
    assert status == "completed"
    assert http.get(path, headers={"if-none-match": tag}).status_code == 304


def test_what_is_shown_besides_and_the_other_dialect_have_tags_of_their_own(service: ServiceProcess) -> None:
    http, path = service.http(), made(service)
    tag = http.get(path).headers["etag"]
    sealed = http.get(path, params={"include": "reasoning.encrypted_content"}, headers={"if-none-match": tag})
    assert (sealed.status_code, "encrypted_content" in sealed.text) == (200, True)
    assert http.get(f"/open-responses{path}", headers={"if-none-match": tag}).status_code == 200


def test_one_connection_goes_on_after_an_answer_without_a_body(service: ServiceProcess) -> None:
    http, path = service.http(), made(service)
    tag = http.get(path).headers["etag"]
    ports = set[object]()
    for known in ("none", tag, "none", tag):
        with http.stream("GET", path, headers={"if-none-match": known}) as answer:
            ports.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
            assert len(answer.read()) == (0 if answer.status_code == 304 else int(answer.headers["content-length"]))
    assert len(ports) == 1


async def test_a_long_answer_is_hashed_as_a_whole() -> None:
    body = bytes(range(256)) * (BYTES_A_STEP // 100)
    answer = await unless_known([], Response(body))
    assert answer.headers["etag"] == f'"{blake2b(body, digest_size=TAG_BYTES).hexdigest()}"'
    known = (b"if-none-match", answer.headers["etag"].encode())
    assert (await unless_known([known], Response(body))).status_code == 304
