"""Refusals as the official client meets them: typed exceptions, whose fields say what to do."""

import asyncio
import contextlib
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types.responses import Response

from service.settings.settings import Settings
from store.redis.connection import connect
from tests.support.engine.scripted import Stall
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import until

UNKNOWN = "resp_" + "0" * 48


def refused(service: ServiceProcess, **body: object) -> openai.APIStatusError:
    """The SDK's exception for a create request."""
    with pytest.raises(openai.APIStatusError) as refusal:
        service.client().post("/responses", body=body, cast_to=Response)
    return refusal.value


def test_a_bad_request_says_what_is_wrong_and_where(service: ServiceProcess) -> None:
    error = refused(service, model=MODEL, input="hi", temperature=3)
    assert isinstance(error, openai.BadRequestError)
    assert (error.type, error.code, error.param) == ("invalid_request_error", "invalid_value", "temperature")
    assert "3" in error.message
    assert error.request_id


def test_a_parameter_of_a_later_release_is_named(service: ServiceProcess) -> None:
    error = refused(service, model=MODEL, input="hi", conversation="conv_1")
    assert (error.status_code, error.code, error.param) == (400, "unsupported_parameter", "conversation")


def test_a_schema_that_can_not_be_held_is_refused_with_its_keyword(service: ServiceProcess) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    form = {"type": "json_schema", "name": "a", "strict": True, "schema": schema}
    error = refused(service, model=MODEL, input="hi", text={"format": form})
    assert (error.status_code, error.code) == (400, "invalid_json_schema")
    assert error.param == "text.format.schema.properties.a.uniqueItems"
    assert "Leave it out" in error.message


def test_a_refused_tool_is_named_by_its_place(service: ServiceProcess) -> None:
    inside = {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "a b"}]}
    error = refused(service, model=MODEL, input="hi", tools=[{"type": "web_search"}, inside])
    assert (error.code, error.param) == ("invalid_value", "tools[1].tools[0].name")


def test_an_unknown_model_is_not_found(service: ServiceProcess) -> None:
    error = refused(service, model="gpt-9", input="hi")
    assert isinstance(error, openai.NotFoundError)
    assert (error.code, error.param) == ("model_not_found", "model")
    assert MODEL in error.message


def test_an_unknown_previous_response_is_a_bad_request(service: ServiceProcess) -> None:
    error = refused(service, model=MODEL, input="hi", previous_response_id=UNKNOWN)
    assert isinstance(error, openai.BadRequestError)
    assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")
    assert UNKNOWN in error.message


def test_an_unknown_response_is_not_found(service: ServiceProcess) -> None:
    with pytest.raises(openai.NotFoundError, match=UNKNOWN) as refusal:
        service.client().responses.retrieve(UNKNOWN)
    assert refusal.value.param == "response_id"


def test_a_prompt_beyond_the_context_says_so(service: ServiceProcess) -> None:
    error = refused(service, model=MODEL, input="one " * 140_000)
    assert (error.status_code, error.code, error.param) == (400, "context_length_exceeded", "input")
    assert "131072" in error.message


def test_a_refused_stream_is_a_plain_error(service: ServiceProcess) -> None:
    error = refused(service, model=MODEL, input=5, stream=True)
    assert error.response.headers["content-type"] == "application/json"
    assert (error.code, error.param) == ("invalid_type", "input")


def test_what_a_retry_can_not_mend_is_not_retried(service: ServiceProcess) -> None:
    error = refused(service, model=MODEL)
    assert error.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/nothing"), ("PUT", "/v1/responses"), ("GET", "/")])
def test_what_is_not_there_answers_in_the_envelope_too(service: ServiceProcess, method: str, path: str) -> None:
    answer = service.http().request(method, path, headers={"content-type": "application/json"})
    assert answer.status_code in (404, 405)
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert path in answer.json()["error"]["message"]


async def test_a_bug_in_the_service_is_a_server_error_in_the_envelope(settings: Settings) -> None:
    def burst(generation: object) -> list[list[int]]:
        raise ZeroDivisionError("marmalade")

    async with serving(settings, scripted(burst)) as inside, inside.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == answer.json()["error"]["type"] == "server_error"
    assert "marmalade" not in answer.text
    assert answer.headers["x-request-id"].startswith("req_")


async def test_a_stream_that_meets_a_bug_is_visibly_cut_off(settings: Settings) -> None:
    def burst(generation: object) -> Iterator[list[int]]:
        yield opened("Half an answer")
        raise ZeroDivisionError

    async with serving(settings, scripted(burst)) as inside, inside.http() as http:
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            await http.post("/v1/responses", json={"model": MODEL, "input": "hi", "stream": True})


async def test_a_service_that_is_full_says_when_to_come_back(settings: Settings) -> None:
    full = settings.model_copy(update={"max_concurrent_requests": 1})
    engine = scripted([Stall()])
    async with serving(full, engine) as inside, inside.http() as http, inside.http() as other:
        first = asyncio.create_task(other.post("/v1/responses", json={"model": MODEL, "input": "hi"}))
        await until(lambda: engine.running)
        answer = await http.get("/v1/models")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
        assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("1", "true")
        assert (await http.get("/health")).status_code == 200
        await engine.close()
        assert (await first).json()["status"] == "cancelled"


async def test_what_a_later_release_stored_says_to_upgrade_and_asks_for_no_retry(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        id = (await client.responses.create(model=MODEL, input="hi")).id
        async with contextlib.aclosing(connect(settings.redis_url)) as redis:
            (key,) = await redis.keys(f"{settings.key_prefix}:*:response:{id[5:]}")
            await redis.setrange(key, 0, b"\xff")
        with pytest.raises(openai.InternalServerError, match="Upgrade") as refusal:
            await client.responses.retrieve(id)
    assert (refusal.value.status_code, refusal.value.type, refusal.value.code) == (500, "server_error", "server_error")
    assert refusal.value.response.headers["x-should-retry"] == "false"
