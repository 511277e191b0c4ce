"""A sandbox that dies with a worker amid a call: real processes, as an operator has them.

scenarios/calls.py has the workers that die between two steps of a call.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError
from openai.types.responses import Response, ResponseCodeInterpreterToolCall

from store.embedded import EmbeddedServer
from tests.support.chaos.storm import QUICK
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.waiting import wait_until

SECONDS = 60.0
"""How long anything may take that is waited for."""

LASTING = "open('/mnt/data/runs', 'a').write('x'); import time; time.sleep(20)"
"""Code that takes a while, and leaves a file as soon as it runs."""


def call_of(response: Response) -> ResponseCodeInterpreterToolCall:
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    return call


@pytest.mark.timeout(240)
def test_code_whose_sandbox_dies_is_not_run_again_and_the_next_call_gets_another_container(tmp_path: Path) -> None:
    with ExitStack() as ending:
        store = ending.enter_context(EmbeddedServer(tmp_path / "store"))
        sandbox = SandboxProcess(tmp_path / "sandbox", ending.enter_context(folder_for_all()))
        ending.callback(sandbox.kill)
        settings: dict[str, Any] = QUICK | {"redis_url": store.url, "sandbox": sandbox.listen}
        api = ServiceProcess(tmp_path / "api", "--no-embedded-worker", **settings)
        ending.callback(api.kill)
        client = api.client()

        def asked(code: str, **members: Any) -> str:
            tool: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
            shown: Any = {"include": ["code_interpreter_call.outputs"], "tools": [tool], "background": True}
            return client.responses.create(model=MODEL, input=f"Use python: {code}", **shown, **members).id

        def runs(id: str) -> bool:
            calls = [item for item in client.responses.retrieve(id).output if item.type == "code_interpreter_call"]
            return bool(calls and client.containers.files.list(calls[0].container_id).data)

        def done(id: str) -> Response:
            wait_until(lambda: client.responses.retrieve(id).status not in ("queued", "in_progress"), SECONDS)
            return client.responses.retrieve(id)

        worker = WorkerProcess(tmp_path / "first", **settings)
        id = asked(LASTING)
        wait_until(lambda: runs(id), SECONDS, "it doesn't run", passing=NotFoundError)
        sandbox.kill()
        worker.kill()
        sandbox.start()
        ending.callback(WorkerProcess(tmp_path / "second", **settings).kill)
        lost = done(id)
        next_one = done(asked("print('again')", previous_response_id=lost.id))
    assert (lost.status, call_of(lost).status) == ("completed", "failed")
    (output,) = call_of(next_one).outputs or []
    assert (call_of(next_one).status, output.type == "logs" and output.logs) == ("completed", "again\n")
    assert call_of(next_one).container_id != call_of(lost).container_id
