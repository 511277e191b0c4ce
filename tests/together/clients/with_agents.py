"""OpenAI's Agents SDK: tools, handoffs, structured output, streaming, and conversations kept here and there."""

import os
import uuid

import httpx
from agents import (
    Agent,
    ApplyPatchTool,
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ModelRetrySettings,
    ModelSettings,
    OpenAIProvider,
    OpenAIResponsesModel,
    RetryDecision,
    RunConfig,
    Runner,
    RunState,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
    SQLiteSession,
    WebSearchTool,
    function_tool,
)
from agents.memory import OpenAIResponsesCompactionSession
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel

MODEL = os.environ["MODEL"]
WEATHER = "What is the weather in Paris? Use the tool."
SOCKET = RunConfig(model_provider=OpenAIProvider(use_responses_websocket=True))
STATELESS = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])


class City(BaseModel):
    city: str
    inhabitants: int


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(name: str = "Assistant", **options):
    return Agent(name=name, model=MODEL, **options)


def kinds(result):
    return [item.type for item in result.new_items]


async def test_parallel_calls_are_all_answered():
    result = await Runner.run(agent(tools=[get_weather]), "What is the weather in Paris and London? Use the tool.")
    assert kinds(result).count("tool_call_output_item") == 2
    assert "18 degrees in Paris" in result.final_output
    assert "18 degrees in London" in result.final_output


def adding(approve, asked):
    """A tool that the service calls, once somebody has approved it."""
    config = {
        "type": "mcp",
        "server_label": "maths",
        "server_url": os.environ["MCP_URL"],
        "allowed_tools": ["add"],
        "require_approval": "always",
    }

    def on_approval_request(request):
        asked.append(request.data.name)
        return {"approve": True} if approve else {"approve": False, "reason": "Too dear."}

    return HostedMCPTool(tool_config=config, on_approval_request=on_approval_request)


async def test_a_call_of_the_service_s_waits_for_an_approval():
    asked = []
    result = await Runner.run(agent(tools=[adding(True, asked)]), "What is 2 plus 40? Use the add tool.")
    assert asked == ["add"]
    assert "42" in result.final_output
    again = await Runner.run(
        agent(tools=[adding(True, asked)]), [*result.to_input_list(), {"role": "user", "content": "Say hello."}]
    )
    assert again.final_output
    assert asked == ["add"]


class Lossy(httpx.AsyncHTTPTransport):
    """A connection that loses the first answer, once the service has given it, and notes what the others are."""

    def __init__(self):
        super().__init__()
        self.answers = []

    async def handle_async_request(self, request):
        answer = await super().handle_async_request(request)
        body = await answer.aread()
        self.answers.append((answer.headers.get("idempotent-replayed"), answer.json()["id"]))
        if len(self.answers) == 1:
            raise httpx.ReadError("the answer is lost", request=request)
        return httpx.Response(answer.status_code, content=body, headers={"content-type": "application/json"})


def replay(context):
    """Asks again whatever was lost: with a key nothing is made twice."""
    return RetryDecision(retry=True, delay=0, approve_unsafe_replay=True)


async def test_a_call_whose_answer_is_lost_is_replayed_with_its_key_and_made_once():
    lossy = Lossy()
    retry = ModelRetrySettings(max_retries=1, policy=replay)
    settings = ModelSettings(extra_headers={"Idempotency-Key": str(uuid.uuid4())}, retry=retry)
    async with AsyncOpenAI(max_retries=0, http_client=httpx.AsyncClient(transport=lossy, trust_env=False)) as client:
        asking = Agent(name="Assistant", model=OpenAIResponsesModel(MODEL, client), model_settings=settings)
        result = await Runner.run(asking, "Say hello.")
    (first, id), (second, again) = lossy.answers
    assert (first, second, id) == (None, "true", again)
    assert result.last_response_id == id


async def test_a_run_that_was_kept_goes_on_twice_from_its_state_with_a_key_and_is_made_once():
    @function_tool(needs_approval=True)
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"18 degrees in {city}"

    asking = agent(tools=[get_weather])
    result = await Runner.run(asking, WEATHER)
    (waiting,) = result.interruptions
    assert waiting.name == "get_weather"
    kept, ends = result.to_state().to_string(), []
    keyed = RunConfig(model_settings=ModelSettings(extra_headers={"Idempotency-Key": str(uuid.uuid4())}))
    for _ in range(2):  # as if the first process had died before it kept its end
        state = await RunState.from_string(asking, kept)
        state.approve(state.get_interruptions()[0])
        ends.append(await Runner.run(asking, state, run_config=keyed))
    assert "18 degrees in Paris" in ends[0].final_output
    assert ends[0].last_response_id == ends[1].last_response_id
    assert ends[0].final_output == ends[1].final_output


async def test_a_run_is_streamed_to_its_end():
    result = Runner.run_streamed(agent(tools=[get_weather]), WEATHER)
    events = [event async for event in result.stream_events()]
    raw = [event.data for event in events if event.type == "raw_response_event"]
    written = "".join(event.delta for event in raw if event.type == "response.output_text.delta")
    assert written == result.final_output
    steps = [event.name for event in events if event.type == "run_item_stream_event"]
    assert [s for s in steps if "reasoning" not in s] == ["tool_called", "tool_output", "message_output_created"]


async def test_a_conversation_is_handed_to_another_agent_who_uses_a_tool():
    other = agent("Weather agent", tools=[get_weather], model_settings=ModelSettings(tool_choice="required"))
    first = agent("Triage", handoffs=[other])
    result = await Runner.run(first, "Please transfer me to the weather agent.")
    assert result.last_agent is other
    wanted = ["handoff_call_item", "handoff_output_item", "tool_call_item", "tool_call_output_item"]
    assert [kind for kind in kinds(result) if kind in wanted] == wanted
    assert "18 degrees" in result.final_output


async def test_a_result_is_an_object_of_the_class():
    result = await Runner.run(agent(output_type=City), "Tell me of Paris.")
    assert isinstance(result.final_output, City)


async def test_a_conversation_kept_by_the_client_brings_its_sealed_reasoning_back():
    keeper = agent(tools=[get_weather], model_settings=STATELESS)
    first = await Runner.run(keeper, f"My name is Ada. {WEATHER}")
    items = first.to_input_list()
    assert [item["encrypted_content"] for item in items if item.get("type") == "reasoning"]
    second = await Runner.run(keeper, [*items, {"role": "user", "content": "What is my name?"}])
    assert "Ada" in second.final_output


async def test_a_conversation_kept_by_the_service_goes_on_by_the_id_of_its_last_response():
    first = await Runner.run(agent(tools=[get_weather]), f"My name is Ada. {WEATHER}", auto_previous_response_id=True)
    second = await Runner.run(agent(), "What is my name?", previous_response_id=first.last_response_id)
    assert "Ada" in second.final_output


async def test_a_session_is_compacted_and_goes_on():
    session = OpenAIResponsesCompactionSession("one", SQLiteSession("one"), model=MODEL)
    await Runner.run(agent(), "Hello! My name is Ada.", session=session)
    await session.run_compaction({"force": True})
    assert [item.get("type") for item in await session.get_items()] == ["message", "compaction"]
    assert "Ada" in (await Runner.run(agent(), "What is my name?", session=session)).final_output


async def test_reasoning_comes_with_a_summary_where_one_is_asked_for():
    settings = ModelSettings(reasoning=Reasoning(effort="low", summary="auto"), verbosity="low")
    result = await Runner.run(agent(), "Say hello.", run_config=RunConfig(model_settings=settings))
    (reasoning,) = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
    assert reasoning.summary[0].text


async def test_a_conversation_goes_on_over_a_websocket():
    first = await Runner.run(
        agent(tools=[get_weather]), f"My name is Ada. {WEATHER}", auto_previous_response_id=True, run_config=SOCKET
    )
    result = Runner.run_streamed(
        agent(), "What is my name?", previous_response_id=first.last_response_id, run_config=SOCKET
    )
    events = [event async for event in result.stream_events()]
    assert events
    assert "Ada" in result.final_output


def run_commands(request):
    """An executor that says what it was asked to run."""
    commands = " and ".join(request.data.action.commands)
    return ShellResult([ShellCommandOutput(stdout=f"ran {commands}\n", outcome=ShellCallOutcome("exit", 0))])


async def test_a_shell_s_commands_are_run_here_and_their_output_is_in_the_answer():
    result = await Runner.run(agent(tools=[ShellTool(run_commands)]), 'Run the shell command "echo heron" for me.')
    (call,) = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
    assert call["type"] == "shell_call" if isinstance(call, dict) else call.type == "shell_call"
    assert "ran echo heron" in result.final_output


class Editor:
    """An editor that notes what it was asked for."""

    def __init__(self):
        self.asked = []

    def create_file(self, operation):
        return self.update_file(operation)

    def update_file(self, operation):
        self.asked.append(operation.type)
        return f"changed {operation.path}"

    def delete_file(self, operation):
        return self.update_file(operation)


async def test_a_patch_is_applied_here_and_a_conversation_kept_by_the_client_goes_on():
    editor = Editor()
    settings = ModelSettings(tool_choice="apply_patch", store=False)
    patching = agent(tools=[ApplyPatchTool(editor)], model_settings=settings)
    result = await Runner.run(patching, "My name is Ada. Please change a file.")
    assert len(editor.asked) == 1
    assert "changed " in result.final_output
    items = result.to_input_list()
    again = await Runner.run(agent(), [*items, {"role": "user", "content": "What is my name?"}])
    assert "Ada" in again.final_output


def calls(result, kind):
    """The calls of a kind that its responses made."""
    return [item.raw_item for item in result.new_items if getattr(item.raw_item, "type", None) == kind]


async def goes_on(result, **options):
    """The answer to another question, with all items sent back by the client."""
    items = [*result.to_input_list(), {"role": "user", "content": "Say hello."}]
    again = await Runner.run(agent(**options), items)
    assert again.final_output


async def test_the_web_is_searched_by_the_service_and_cited():
    tools = [WebSearchTool()]
    result = await Runner.run(agent(tools=tools), 'Search the web for "high water" please.')
    assert [call.action.type for call in calls(result, "web_search_call")] == ["search", "open_page"]
    (message,) = calls(result, "message")
    assert message.content[0].annotations[0].title == "Tides"
    await goes_on(result, tools=tools)


async def test_code_is_run_by_the_service_and_its_conversation_keeps_variables():
    tools = [CodeInterpreterTool({"type": "code_interpreter", "container": {"type": "auto"}})]
    result = Runner.run_streamed(agent(tools=tools), "Use python: n = 6 * 7; print(n)")
    async for _ in result.stream_events():
        pass
    (call,) = calls(result, "code_interpreter_call")
    assert (call.code, call.status) == ("n = 6 * 7; print(n)", "completed")
    assert "42" in result.final_output
    items = [*result.to_input_list(), {"role": "user", "content": "Use python: print(n + 1)"}]
    again = await Runner.run(agent(tools=tools), items)
    assert "43" in again.final_output
    assert calls(again, "code_interpreter_call")[0].container_id == call.container_id


async def test_files_are_searched_by_the_service():
    tools = [FileSearchTool(["vs_1"], max_num_results=1, include_search_results=True)]
    result = await Runner.run(agent(tools=tools), 'Search my files for "tides".')
    (search,) = calls(result, "file_search_call")
    assert [each.filename for each in search.results] == ["tides.md"]
    assert "High water is at ten." in result.final_output
    await goes_on(result, tools=tools)
