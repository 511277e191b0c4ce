"""Conversations outlive the process that held them, even one that was killed."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

Start = Callable[..., ServiceProcess]


def test_everything_said_is_there_after_a_kill(start: Start) -> None:
    service = start()
    client = service.client()
    first = client.responses.create(model=MODEL, input="My name is Ada.", metadata={"turn": "1"})
    second = client.responses.create(model=MODEL, input="Count to 3.", previous_response_id=first.id)
    items = [item.id for item in client.responses.input_items.list(second.id, order="asc")]
    deleted = client.responses.create(model=MODEL, input="hi", previous_response_id=second.id)
    client.responses.delete(deleted.id)
    service.kill()
    service.start()
    client = service.client()
    assert client.responses.retrieve(first.id) == first
    assert client.responses.retrieve(second.id) == second
    assert [item.id for item in client.responses.input_items.list(second.id, order="asc", limit=1)] == items
    assert service.http().get(f"/v1/responses/{deleted.id}").status_code == 404
    for parent in (first, second):  # the first is forked by this
        answer = client.responses.create(model=MODEL, input="What is my name?", previous_response_id=parent.id)
        assert "Ada" in answer.output_text


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
