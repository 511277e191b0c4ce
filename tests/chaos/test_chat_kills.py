"""Workers that die while a model with a chat template answers: another one goes on at the token."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.embedded import EmbeddedServer
from tests.support.chaos.storm import QUICK
from tests.support.llama.talker import KEY, LlamaProcess
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.process import ServiceProcess, WorkerProcess
from tests.support.waiting import wait_until

SECONDS = 60.0
"""How long an answer may take, over all workers, on a busy machine."""

CITY: Any = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 200},
        "reasons": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city", "reasons"],
    "additionalProperties": False,
}
ASKED: dict[str, dict[str, Any]] = {
    "an answer": {"input": "Tell me a long story of a fox.", "max_output_tokens": 80},
    "the arguments of a call": {
        "input": "Where should I go, and why? Give many reasons.",
        "tools": [{"type": "function", "name": "travel", "parameters": CITY}],
        "tool_choice": "required",
        "max_output_tokens": 80,
    },
}


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    server = LlamaProcess(smol=True)
    yield server.url
    server.kill()


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_a_dead_worker_began_is_said_to_its_end_and_nothing_twice(
    tmp_path: Path, llama: str, asked: dict[str, Any]
) -> None:
    with EmbeddedServer(tmp_path / "store") as store:
        settings = QUICK | {"redis_url": store.url, "engine": "llama", "engine_url": llama, "engine_api_key": KEY}
        service = ServiceProcess(tmp_path / "service", "--no-worker", **settings)
        worker = WorkerProcess(tmp_path / "first", **settings)
        client = service.client()
        request: Any = {"model": "smol", "temperature": 0} | asked
        expected = client.responses.create(**request)
        response = client.responses.create(**request, background=True, stream=True)
        events: list[Any] = []
        workers = [worker]
        for event in response:
            events.append(event.to_dict())
            if event.type.endswith(".delta") and len(events) in (10, 24):
                workers[-1].kill()
                workers.append(WorkerProcess(tmp_path / f"next-{len(events)}", **settings))
        check_stream(events)
        ended = wait_until(lambda: client.responses.retrieve(events[0]["response"]["id"]), SECONDS)
        assert len(workers) == 3
        assert ended.output[0].type == expected.output[0].type
        if "tools" not in asked:  # behind a death, nothing holds arguments to their format but the check at the end
            assert ended.output_text == expected.output_text
            assert ended.usage is not None
            assert expected.usage is not None
            assert ended.usage.output_tokens == expected.usage.output_tokens
        for each in (*workers, service):
            each.stop()
