"""Streaming: the order of events, what the SDKs make of it, and that both kinds of answer are one."""

from collections.abc import Callable
from typing import Any

from tests.support.service.process import MODEL, Served, ServiceProcess
from tests.support.service.streams import parsed


def streamed(service: ServiceProcess, **body: object) -> list[dict[str, Any]]:
    answer = service.http().post("/v1/responses", json={"model": MODEL, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    return parsed(answer.text)


def test_events_come_in_order_and_add_up_to_the_response(service: ServiceProcess) -> None:
    events = streamed(service, input="Count to 20.")
    final = events[-1]["response"]
    assert events[-1]["type"] == "response.completed"
    assert final["output"][-1]["content"][0]["text"].split() == [str(number) for number in range(1, 21)]
    assert len([event for event in events if event["type"] == "response.output_text.delta"]) > 1
    assert events[0]["response"]["usage"] is None
    assert events[0]["response"]["output"] == []


def test_the_sdk_s_helper_accumulates_the_terminal_response(service: ServiceProcess) -> None:
    with service.client().responses.stream(model=MODEL, input="Count to 5.") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert service.client().responses.retrieve(final.id).output_text == text


def test_a_plain_answer_is_what_a_stream_ends_with(service: ServiceProcess) -> None:
    request = {"model": MODEL, "input": "Count to 30.", "instructions": "Be exact.", "metadata": {"a": "b"}}
    plain = service.http().post("/v1/responses", json=request).json()
    final = streamed(service, **request)[-1]["response"]
    for response in (plain, final):
        assert response.pop("id").startswith("resp_")
        for item in response["output"]:
            assert item.pop("id")
        for moment in ("created_at", "completed_at"):
            assert response.pop(moment)
    _, cached = [response["usage"].pop("input_tokens_details")["cached_tokens"] for response in (plain, final)]
    assert cached == (plain["usage"]["input_tokens"] - 1) // 16 * 16, "all whole blocks before the last token"
    assert plain == final


def test_a_stream_that_ran_into_its_budget_ends_incomplete(service: ServiceProcess) -> None:
    events = streamed(service, input="Count to 1000.", max_output_tokens=40)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert events[-2]["item"]["status"] == "incomplete"


def test_a_streamed_response_is_stored_before_its_end_is_seen(service: ServiceProcess) -> None:
    for _ in range(5):
        final = streamed(service, input="hi")[-1]["response"]
        assert service.http().get(f"/v1/responses/{final['id']}").json() == final


def test_deltas_are_padded_unless_that_is_declined(service: ServiceProcess) -> None:
    padded = [event for event in streamed(service, input="Count to 20.") if "delta" in event]
    assert all((len(event["delta"]) + len(event["obfuscation"])) % 16 == 0 for event in padded)
    plain = streamed(service, input="hi", stream_options={"include_obfuscation": False})
    assert not any("obfuscation" in event for event in plain)


def test_a_stream_says_what_proxies_need_to_hear(service: ServiceProcess) -> None:
    answer = service.http().post("/v1/responses", json={"model": MODEL, "input": "hi", "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-request-id"].startswith("req_")


def test_silence_is_filled_with_comments_that_clients_skip(beside: Callable[..., Served]) -> None:
    slow = beside(demo_tokens_per_second=10, keepalive_seconds=0.03)
    request = {"model": MODEL, "input": "hi", "max_output_tokens": 16}
    answer = slow.http().post("/v1/responses", json={**request, "stream": True})
    assert answer.text.count(": keep-alive\n\n") > 5
    assert parsed(answer.text)[-1]["type"] == "response.incomplete"
    with slow.client().responses.stream(**request) as stream:
        assert [event.type for event in stream][-1] == "response.incomplete"
