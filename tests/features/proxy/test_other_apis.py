"""APIs beside OpenAI's chat that are passed on: messages as Anthropic has them, ranking, scores, decisions, audio."""

import json
from typing import Any

import httpx
import pytest

from service.process import Settings
from service.settings.core import ApiKey
from tests.features.proxy.conftest import Behind, standing_before
from tests.support.engine.chatting import TOLD
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.service.process import ACME_KEY, GLOBEX_KEY
from tests.support.service.scraped import Scraped

MESSAGES = "/v1/messages"
SOUND = "/v1/audio/transcriptions"
WAV = ("tides.wav", b"RIFF\x00\xff\r\n--b--\r\n" * 9, "audio/wav")
COUNT = "/v1/messages/count_tokens"
EVENTS = (("content-type", "text/event-stream"),)
BODIES: dict[str, dict[str, Any]] = {
    COUNT: {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/rerank": {"query": "maps", "documents": ["a", "b"]},
    "/v1/score": {"text_1": "maps", "text_2": ["a", "b"]},
    "/v1/decisions": {"input": "hi", "questions": [{"type": "predicate", "instructions": "It greets."}]},
}
START = b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'


def message(said: Any = "hello you", **more: Any) -> dict[str, Any]:
    return {"model": "talker", "max_tokens": 16, "messages": [{"role": "user", "content": said}], **more}


async def ask(behind: Behind, body: dict[str, Any], path: str = MESSAGES, **headers: str) -> httpx.Response:
    async with behind.inside.http() as http:
        return await http.post(path, json=body, headers=headers)


async def test_a_message_is_the_servers_with_the_headers_of_its_api(behind: Behind) -> None:
    answer = await ask(behind, message(), **{"anthropic-version": "2023-06-01", "anthropic-beta": "a,b"})
    assert answer.json()["content"] == [{"type": "text", "text": "hello you"}]
    asked = behind.server.asked[-1]
    assert {name: asked.headers[name] for name in ("anthropic-version", "anthropic-beta")} == {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "a,b",
    }
    assert asked.body.keys() == {"model", "max_tokens", "messages"}


async def test_a_stream_of_a_message_ends_with_its_last_event_and_is_counted(behind: Behind) -> None:
    answer = await ask(behind, message("one two three", stream=True))
    kinds = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert "[DONE]" not in answer.text
    async with behind.inside.http() as http:
        found = Scraped((await http.get("/metrics")).text)
    assert found.value("harmonium_input_tokens_total") == 4
    assert found.value("harmonium_cached_tokens_total") == 1
    assert found.value("harmonium_output_tokens_total") == 3


@pytest.mark.parametrize("path", TOLD)
async def test_all_others_are_passed_on_too(behind: Behind, path: str) -> None:
    answer = await ask(behind, {"model": "gpt-4o", **BODIES[path]}, path)
    assert answer.json() == {"model": "talker", **TOLD[path]}
    asked = behind.server.asked[-1]
    assert asked.body["model"] == "talker"
    assert ("cache_salt" in asked.body) == (path in ("/v1/rerank", "/v1/score"))


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (message(temprature=1), "invalid_request_error", "Did you mean 'temperature'?"),
        (message([{"type": "image", "source": {"type": "url", "url": "http://10.0.0.1/"}}]), "invalid_request_error",
         "messages[0].content[0].source.url"),
        (message(mcp_servers=[]), "invalid_request_error", "POST /v1/responses can"),
        ({**message(), "model": "gpt-9"}, "not_found_error", "gpt-9"),
    ],
)  # fmt: skip
async def test_a_refusal_is_one_of_anthropics(behind: Behind, body: dict[str, Any], kind: str, words: str) -> None:
    answer = await ask(behind, body)
    told = answer.json()
    assert told.keys() == {"type", "error", "request_id"}
    assert (told["type"], told["error"]["type"]) == ("error", kind)
    assert words in told["error"]["message"]
    assert told["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "instead",
    [
        Instead((START,), then=Then.CUT, headers=EVENTS),
        Instead((START, b'event: error\ndata: {"type":"error","error":{"message":"CUDA"}}\n\n'), headers=EVENTS),
    ],
    ids=["cut", "failed"],
)
async def test_a_stream_that_the_server_breaks_off_ends_in_an_error_event(behind: Behind, instead: Instead) -> None:
    behind.server.instead[MESSAGES] = instead
    answer = await ask(behind, message(stream=True))
    *_, last = answer.text.rstrip("\n").split("\n\n")
    kind, data = last.splitlines()
    assert kind == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["type"] == "overloaded_error" or "CUDA" not in data
    assert "message_stop" not in answer.text


async def test_a_key_may_come_as_anthropics_clients_send_it(settings: Settings) -> None:
    keys = (ApiKey("acme", type(settings.engine_api_key)(ACME_KEY)),)
    async with standing_before(settings, api_keys=keys) as behind:
        assert (await ask(behind, message(), **{"x-api-key": ACME_KEY})).status_code == 200
        assert "x-api-key" not in behind.server.asked[-1].headers
        for headers in ({}, {"x-api-key": GLOBEX_KEY}, {"x-api-key": ACME_KEY, "authorization": "Bearer no"}):
            refused = await ask(behind, message(), **headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("path", [MESSAGES, "/v1/decisions", SOUND])
async def test_where_servers_know_no_salts_one_tenant_alone_is_served(settings: Settings, path: str) -> None:
    secret = type(settings.engine_api_key)
    keys = (ApiKey("acme", secret(ACME_KEY)), ApiKey("globex", secret(GLOBEX_KEY)))
    body = message() if path == MESSAGES else {"model": "talker", **BODIES.get(path, {})}
    async with standing_before(settings, api_keys=keys) as behind:
        headers = {"authorization": f"Bearer {ACME_KEY}"}
        async with behind.inside.http() as http:
            sent: dict[str, Any] = {"data": body, "files": {"file": WAV}} if path == SOUND else {"json": body}
            refused = await http.post(path, headers=headers, **sent)
        assert refused.status_code == 404
        assert "only with a single tenant" in refused.json()["error"]["message"]
        assert "Use POST /v1/responses" in refused.json()["error"]["message"]
        counted = await ask(behind, {"model": "talker", **BODIES[COUNT]}, COUNT, authorization=f"Bearer {ACME_KEY}")
        assert counted.json()["input_tokens"] == 7


async def transcribe(behind: Behind, file: Any = WAV, **fields: Any) -> httpx.Response:
    """The outcome of a form, of which the lists are fields that come several times."""
    async with behind.inside.http() as http:
        return await http.post(SOUND, files={"file": file}, data={"model": "gpt-4o", **fields})


async def test_audio_is_transcribed_from_a_form_by_the_model_that_it_names(behind: Behind) -> None:
    told = await transcribe(
        behind, language="en", temperature="0.20", **{"timestamp_granularities[]": ["word", "segment"]}
    )
    assert told.json() == {"text": f"tides.wav {len(WAV[1])}", "usage": {"type": "duration", "seconds": 2}}
    assert behind.server.asked[-1].body == {
        "model": "talker",
        "language": "en",
        "temperature": "0.20",
        "timestamp_granularities[]": ["word", "segment"],
        "file": (WAV[0], WAV[2], WAV[1]),
    }


async def test_a_form_is_written_anew_so_that_a_server_reads_nothing_else_in_it(behind: Behind) -> None:
    sneaky = ('a"; name="model', b"x", 'audio/wav"\r\nx: y')
    await transcribe(behind, sneaky, prompt='"\r\n--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nother')
    asked = behind.server.asked[-1].body
    assert asked.keys() == {"model", "prompt", "file"}
    assert asked["model"] == "talker"
    assert asked["prompt"].endswith("other")
    assert asked["file"][1:] == ("application/octet-stream", b"x")
