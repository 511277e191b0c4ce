"""Conversations outlive the process that held them, even one that was killed."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

Start = Callable[..., ServiceProcess]


def test_the_whole_client_works_after_a_kill(start: Start) -> None:
    service = start()
    service.client().responses.create(model=MODEL, input="hi")
    service.kill()
    service.start()
    client = service.client()
    with client.responses.stream(model=MODEL, input="My boat is called Vesper.") as stream:
        assert [event.type for event in stream][-1] == "response.completed"
        first = stream.get_final_response()
    tool: Any = {"type": "function", "name": "get_time", "description": "The time in a city.", "parameters": None}
    asked = client.responses.create(
        model=MODEL, input="What is the time? Use the tool.", tools=[tool], previous_response_id=first.id
    )
    call: Any = asked.output[-1]
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "noon"}]
    answered = client.responses.create(model=MODEL, input=output, tools=[tool], previous_response_id=asked.id)
    assert "noon" in answered.output_text
    last = client.responses.create(model=MODEL, input="What is my boat?", previous_response_id=answered.id)
    assert "Vesper" in last.output_text
    assert len(client.responses.input_items.list(last.id, limit=100).data) > 6
    assert client.models.list().data[0].id == MODEL
    assert client.responses.delete(last.id) is None


@pytest.mark.full
def test_no_answered_response_is_lost_in_ten_kills(start: Start) -> None:
    service = start()
    tip = service.client().responses.create(model=MODEL, input="My name is Ada.").id
    for _ in range(10):
        tip = service.client().responses.create(model=MODEL, input="hi", previous_response_id=tip).id
        store = service.redis_pid()
        service.kill()
        os.kill(store, signal.SIGKILL)
        wait_until(lambda pid=store: not _alive(pid))
        service.start()
    answer = service.client().responses.create(model=MODEL, input="What is my name?", previous_response_id=tip)
    assert "Ada" in answer.output_text


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
