"""Conversations outlive the process that held them, even one that was killed."""

import os
import signal
from collections.abc import Callable
from typing import Any

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


def test_a_history_goes_on_from_what_was_answered_before_a_kill_amid_a_turn(start: Start) -> None:
    service = start(chats="remembered")
    told: list[Any] = [{"role": "user", "content": "My name is Ada."}]
    first = service.client().chat.completions.create(model=MODEL, messages=told)
    told += [{"role": "assistant", "content": first.choices[0].message.content}]
    cut = [*told, {"role": "user", "content": "Count to 3000."}]
    stream = service.client().chat.completions.create(model=MODEL, messages=cut, stream=True)
    assert next(chunk for chunk in stream if chunk.choices[0].delta.content)
    service.kill()
    service.start()
    asked = [*told, {"role": "user", "content": "What is my name?"}]
    last = service.client().chat.completions.create(model=MODEL, messages=asked)
    assert "Ada" in (last.choices[0].message.content or "")
    stored = service.client().responses.retrieve(last.id.replace("chatcmpl-", "resp_"))
    assert stored.previous_response_id == first.id.replace("chatcmpl-", "resp_")


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
