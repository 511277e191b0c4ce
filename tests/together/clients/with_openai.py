"""The official client for Python, by its helpers: parse, stream, and what it makes of items that it sends back."""

import json
import os

from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

MODEL = os.environ["MODEL"]
SEALED = "reasoning.encrypted_content"
client = OpenAI(max_retries=0)


class Event(BaseModel):
    name: str
    participants: list[str]


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str


WEATHER = pydantic_function_tool(GetWeather, name="get_weather")["function"] | {"type": "function"}


def outputs(response):
    """What the tool says to each call."""
    calls = [item for item in response.output if item.type == "function_call"]
    return [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": f"18 degrees in {json.loads(call.arguments)['city']}",
        }
        for call in calls
    ]


def test_a_parsed_stream_ends_with_an_object_of_the_class():
    with client.responses.stream(model=MODEL, input="Ada and Bob meet at a fair.", text_format=Event) as stream:
        written = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        response = stream.get_final_response()
    assert isinstance(response.output_parsed, Event)
    assert Event.model_validate_json(written) == response.output_parsed


def test_parse_gives_the_arguments_of_a_strict_function_as_an_object():
    tools = [pydantic_function_tool(GetWeather)["function"] | {"type": "function"}]
    response = client.responses.parse(
        model=MODEL, input="What is the weather in Paris?", tools=tools, tool_choice="required"
    )
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert isinstance(GetWeather.model_validate(call.parsed_arguments), GetWeather)


def test_parallel_calls_are_answered_by_previous_response_id():
    first = client.responses.create(
        model=MODEL, input="What is the weather in Paris and London? Use the tool.", tools=[WEATHER]
    )
    said = outputs(first)
    assert len(said) == 2
    second = client.responses.create(model=MODEL, previous_response_id=first.id, input=said, tools=[WEATHER])
    assert "Paris" in second.output_text
    assert "London" in second.output_text


def test_a_stateless_tool_loop_sends_reasoning_back_sealed():
    items = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
    kept = {"model": MODEL, "tools": [WEATHER], "store": False, "include": [SEALED]}
    first = client.responses.create(input=items, **kept)
    assert first.output[0].type == "reasoning"
    assert first.output[0].encrypted_content
    items += [item.model_dump(exclude={"content"}, exclude_none=True) for item in first.output]
    assert "18 degrees in Paris" in client.responses.create(input=[*items, *outputs(first)], **kept).output_text


def test_a_streamed_summary_of_reasoning_is_the_item_s():
    with client.responses.stream(model=MODEL, input="Say hello.", reasoning={"summary": "auto"}) as stream:
        parts = [event.text for event in stream if event.type == "response.reasoning_summary_text.done"]
        reasoning = stream.get_final_response().output[0]
    assert parts
    assert parts == [part.text for part in reasoning.summary]


def test_a_compacted_conversation_goes_on():
    said = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Noted."}]
    compacted = client.responses.compact(model=MODEL, input=said)
    items = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output]
    response = client.responses.create(model=MODEL, input=[*items, {"role": "user", "content": "What is my name?"}])
    assert "Ada" in response.output_text


def test_tools_are_called_over_a_websocket():
    asked = "What is the weather in Paris and London? Use the tool."
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input=asked, tools=[WEATHER])
        first = next(event.response for event in connection if event.type == "response.completed")
        connection.response.create(
            model=MODEL, input=outputs(first), previous_response_id=first.id, tools=[WEATHER], stream_id="a"
        )
        events = []
        for event in connection:
            events.append(event)
            if event.type == "response.completed":
                break
    assert "18 degrees in London" in events[-1].response.output_text
    assert {event.stream_id for event in events} == {"a"}


MATHS = {"type": "mcp", "server_label": "maths", "server_url": os.environ["MCP_URL"], "allowed_tools": ["add"]}
ADD = "What is 2 plus 40? Use the add tool."
PYTHON = {"type": "code_interpreter", "container": {"type": "auto"}}
FILES = {"type": "file_search", "vector_store_ids": ["vs_1"]}
SEARCH = 'Search the web for "high water" please.'


def test_a_call_of_a_server_s_tool_is_approved_and_made():
    asked = client.responses.create(model=MODEL, input=ADD, tools=[MATHS])
    (request,) = [item for item in asked.output if item.type == "mcp_approval_request"]
    assert (request.name, request.server_label) == ("add", "maths")
    made = client.responses.create(
        model=MODEL,
        previous_response_id=asked.id,
        tools=[MATHS],
        input=[{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}],
    )
    (call,) = [item for item in made.output if item.type == "mcp_call"]
    assert (call.approval_request_id, call.output, call.error) == (request.id, "42", None)
    assert "42" in made.output_text


def test_code_runs_in_a_container_that_has_files():
    container = client.containers.create(name="sums")
    sent = client.containers.files.create(container.id, file=("a.txt", b"41"))
    assert sent.path == "/mnt/data/a.txt"
    code = "n = int(open('/mnt/data/a.txt').read()) + 1; open('/mnt/data/b.txt', 'w').write(str(n)); print(n)"
    response = client.responses.create(
        model=MODEL,
        input=f"Use python: {code}",
        tools=[PYTHON | {"container": container.id}],
        include=["code_interpreter_call.outputs"],
    )
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    assert (call.container_id, call.outputs[0].logs) == (container.id, "42\n")
    (written,) = [file for file in client.containers.files.list(container.id) if file.path.endswith("b.txt")]
    assert client.containers.files.content.retrieve(written.id, container_id=container.id).read() == b"42"
    client.containers.delete(container.id)


def test_a_search_of_the_web_is_cited():
    response = client.responses.create(
        model=MODEL, input=SEARCH, tools=[{"type": "web_search"}], include=["web_search_call.action.sources"]
    )
    actions = [item.action for item in response.output if item.type == "web_search_call"]
    assert [action.type for action in actions] == ["search", "open_page"]
    assert actions[0].sources[0].url.endswith("tides.md")
    text = response.output[-1].content[0]
    (cited,) = text.annotations
    assert (cited.type, cited.title) == ("url_citation", "Tides")
    assert cited.url in text.text[cited.start_index : cited.end_index]


def test_a_search_of_files_has_results():
    with client.responses.stream(
        model=MODEL, input='Search my files for "tides".', tools=[FILES], include=["file_search_call.results"]
    ) as stream:
        kinds = [event.type for event in stream if "file_search" in event.type]
        response = stream.get_final_response()
    assert kinds == [f"response.file_search_call.{kind}" for kind in ("in_progress", "searching", "completed")]
    (search,) = [item for item in response.output if item.type == "file_search_call"]
    assert search.queries == ["tides"]
    assert [(each.filename, each.score) for each in search.results] == [("tides.md", 0.9), ("moon.md", 0.4)]
