"""Refusals as the official client meets them: typed exceptions, whose fields say what to do."""

import asyncio
import contextlib
import logging
from typing import Any
from uuid import uuid4

import openai
import pytest
from openai.types.responses import Response
from pydantic import SecretStr

from service.process import Settings
from service.settings.core import ApiKey
from service.web.gate import STRANGERS_LOGGED
from store.redis.connection import connect
from tests.support.engine.scripted import Stall
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import ACME_KEY, MODEL, ServiceProcess
from tests.support.waiting import until, wait_until

UNKNOWN = "resp_" + "0" * 48


@pytest.mark.parametrize(
    ("body", "kind", "code", "param", "words"),
    [
        ({"temperature": 3}, openai.BadRequestError, "invalid_value", "temperature", "3"),
        ({"model": "gpt-9"}, openai.NotFoundError, "model_not_found", "model", "demo"),
        (
            {"previous_response_id": UNKNOWN},
            openai.BadRequestError,
            "previous_response_not_found",
            "previous_response_id",
            UNKNOWN,
        ),
        ({"input": "one " * 140_000}, openai.BadRequestError, "context_length_exceeded", "input", "131072"),
        ({"input": 5, "stream": True}, openai.BadRequestError, "invalid_type", "input", "a list of items"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_refusal_is_an_error_of_the_sdk_that_says_what_is_wrong_and_where(
    service: ServiceProcess, body: dict[str, Any], kind: type[openai.APIStatusError], code: str, param: str, words: str
) -> None:
    with pytest.raises(kind, match=words) as refusal:
        service.client().post("/responses", body={"model": MODEL, "input": "hi", **body}, cast_to=Response)
    error, headers = refusal.value, refusal.value.response.headers
    assert (error.type, error.code, error.param) == ("invalid_request_error", code, param)
    assert error.request_id
    assert (headers["content-type"], headers["x-should-retry"]) == ("application/json", "false")


async def test_a_service_that_is_full_says_when_to_come_back(settings: Settings) -> None:
    full = settings.model_copy(update={"max_concurrent_requests": 1, "admission_wait_seconds": 0})
    engine = scripted([Stall()])
    async with serving(full, engine) as inside, inside.http() as http, inside.http() as other:
        first = asyncio.create_task(other.post("/v1/responses", json={"model": MODEL, "input": "hi"}))
        await until(lambda: engine.running)
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
        assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("1", "true")
        assert (await http.get("/health")).status_code == 200
        await engine.close()
        assert (await first).json()["status"] == "cancelled"


async def test_what_a_later_release_stored_says_to_upgrade_and_asks_for_no_retry(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        id = (await client.responses.create(model=MODEL, input="hi")).id
        async with contextlib.aclosing(connect(settings.redis_url)) as redis:
            (key,) = await redis.keys(f"{settings.redis_prefix}:*:response:{id[5:]}")
            await redis.setrange(key, 0, b"\xff")
        with pytest.raises(openai.InternalServerError, match="Upgrade") as refusal:
            await client.responses.retrieve(id)
    assert (refusal.value.status_code, refusal.value.type, refusal.value.code) == (500, "server_error", "server_error")
    assert refusal.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("name", ["authorization", "content-type"])
def test_a_header_that_a_proxy_may_read_otherwise_comes_once(service: ServiceProcess, name: str) -> None:
    answer = service.http().get("/v1/models", headers=[("host", "localhost"), (name, "a"), (name, "b")])
    assert answer.status_code == 400
    assert name in answer.json()["error"]["message"]


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: localhost\r\n"])
async def test_a_request_has_one_host(service: ServiceProcess, hosts: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"GET /v1/models HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"host" in body.lower()


def test_the_log_says_why_and_to_whom_and_nothing_that_was_sent(service: ServiceProcess) -> None:
    marked = f"marmalade-{uuid4().hex}"
    bodies: list[dict[str, Any]] = [
        {"input": marked, "temperature": 3},
        {"input": [{"role": "user", "content": [{"type": marked}]}]},
        {"input": "hi", marked: 1},
    ]
    answers = [service.http().post("/v1/responses", json={"model": MODEL, **body}) for body in bodies]
    ids = [answer.headers["x-request-id"] for answer in answers]
    logged = wait_until(
        lambda: [line for line in service.log.splitlines() if any(str(id) in line for id in ids)],
        wanted=lambda found: len(found) == len(ids),  # a line follows its answer
    )
    assert all("client_address=127.0.0.1" in line for line in logged)
    assert "code=invalid_value" in logged[0]
    assert "param=temperature" in logged[0]
    assert "param=input[0]" in logged[1]
    assert "code=unknown_parameter" in logged[2]
    assert marked not in "".join(logged)


async def test_refusals_of_strangers_are_logged_by_ration(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    keyed = settings.model_copy(update={"api_keys": [ApiKey("acme", SecretStr(ACME_KEY))]})
    async with serving(keyed, scripted(answer("Hi."))) as inside, inside.http() as http:
        caplog.set_level(logging.INFO)
        for _ in range(3 * STRANGERS_LOGGED):
            assert (await http.get("/v1/models")).status_code == 401
    lines = [record for record in caplog.records if record.message == "request"]
    assert STRANGERS_LOGGED <= len(lines) < 3 * STRANGERS_LOGGED
