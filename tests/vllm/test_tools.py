"""Tools that the service calls, before a real vLLM: the talker asks for them in Harmony as gpt-oss does.

Its answers are the same every time at temperature 0, so they are compared word for word.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.engine.servers.engine import Access, ServersEngine
from service.engine.vllm.servers import Vllm
from service.settings.settings import Settings
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.inside import serving
from tests.support.service.process import ServiceProcess
from tests.support.tools.server import McpServer, mcp_server
from tests.support.vllm.reuse import Recorder, Step, reuse
from tests.support.vllm.server import MODEL, block_tokens
from tests.support.waiting import wait_until

pytestmark = pytest.mark.vllm

SECONDS = 30.0
SUMS = ((2, 40), (17, 25), (9, 30), (51, 8), (63, 12), (20, 22))
LEAST_SHARE = 0.99


@pytest.fixture(scope="module")
def maths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """A server with a tool that adds."""
    with mcp_server(tmp_path_factory.mktemp("mcp")) as server:
        yield server


@pytest.fixture(scope="module")
def service(vllm_url: str, maths: McpServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """The service before vLLM, which may ask the server of tools."""
    folder = tmp_path_factory.mktemp("service")
    process = ServiceProcess(folder, engine="vllm", engine_url=vllm_url, mcp_allow=maths.url)
    yield process
    process.stop()


def request(maths: McpServer, question: str, **members: Any) -> Any:
    tool = {"type": "mcp", "server_label": "maths", "server_url": maths.url, "require_approval": "never"}
    return {"model": MODEL, "input": question, "tools": [tool], "temperature": 0, **members}


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


LOOP = ["mcp_list_tools", "reasoning", "mcp_call", "reasoning", "message"]


def test_a_tool_is_called_and_its_answer_read(service: ServiceProcess, maths: McpServer) -> None:
    response = service.client().responses.create(**request(maths, "What is 2 plus 40?"))
    assert kinds(response) == LOOP
    call = response.output[2]
    assert (call.arguments, call.output, call.status) == ('{"a":2,"b":40}', "42", "completed")
    assert response.output_text == "It is 42."


def test_the_whole_loop_is_one_stream(service: ServiceProcess, maths: McpServer) -> None:
    with service.client().responses.create(**request(maths, "Add 17 and 25.", stream=True)) as stream:
        events = [event.to_dict() for event in stream]
    final = check_stream(events)
    assert [item["type"] for item in final["output"]] == LOOP
    assert final["output"][-1]["content"][0]["text"] == "It is 42."


def test_it_goes_on_in_the_background_and_over_turns(service: ServiceProcess, maths: McpServer) -> None:
    client = service.client()
    first = client.responses.create(**request(maths, "What is 9 plus 30?", background=True))
    wait_until(
        lambda: client.responses.retrieve(first.id).status not in {"queued", "in_progress"}, SECONDS, "it doesn't end"
    )
    assert client.responses.retrieve(first.id).output_text == "It is 39."
    second = client.responses.create(**request(maths, "Add 20 and 22.", previous_response_id=first.id))
    assert kinds(second) == LOOP[1:]
    assert second.output_text == "It is 42."


def test_what_is_not_declared_is_not_called(service: ServiceProcess) -> None:
    response = service.client().responses.create(model=MODEL, input="What is 2 plus 40?", temperature=0)
    assert kinds(response) == ["reasoning", "message"]
    assert response.output_text == "I cannot add numbers."


async def test_what_was_read_before_a_call_is_cached(settings: Settings, vllm_url: str, maths: McpServer) -> None:
    recorder = Recorder(ServersEngine(Vllm(), Access((vllm_url,))))
    allowing = settings.model_copy(update={"mcp_allow": (maths.url,)})
    previous: dict[str, str] = {}
    turns: list[list[Step]] = []
    async with serving(allowing, recorder) as inside, inside.client() as client:
        for one, other in SUMS:
            begun = len(recorder.steps)
            response = await client.responses.create(**request(maths, f"What is {one} plus {other}?", **previous))
            assert response.output_text == f"It is {one + other}."
            previous = {"previous_response_id": response.id}
            turns.append(recorder.steps[begun:])
    async with httpx.AsyncClient(base_url=vllm_url, timeout=SECONDS, trust_env=False) as http:
        block = block_tokens((await http.get("/metrics")).text)
    assert all(len(steps) > 1 for steps in turns)  # up to the call, its arguments where they are counted, the answer
    loops = [reuse(steps, block) for steps in turns]
    assert all(loop.common == loop.previous for loop in loops)
    assert sum(loop.cached for loop in loops) >= LEAST_SHARE * sum(loop.whole_blocks for loop in loops)
