"""LangChain's ChatOpenAI: invoke and stream, tools, structured output, and history kept here and there."""

import os
from functools import reduce
from operator import add

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

MODEL = os.environ["MODEL"]
WEATHER = HumanMessage("What is the weather in Paris? Use the tool.")


class City(BaseModel):
    """A city."""

    city: str
    inhabitants: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def model(**options):
    return ChatOpenAI(model=MODEL, use_responses_api=True, max_retries=0, **options)


def outputs(message):
    """What the tool says to each call."""
    return [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in message.tool_calls]


def streamed(runnable, messages):
    """The message that its pieces add up to."""
    return reduce(add, runnable.stream(messages))


def test_a_stream_adds_up_to_an_answer():
    message = streamed(model(), "Count from 1 to 5.")
    assert "5" in message.text
    assert message.usage_metadata["total_tokens"] > 0
    assert message.response_metadata["status"] == "completed"


def test_a_streamed_tool_loop_goes_on_by_previous_response_id():
    tools = model(use_previous_response_id=True).bind_tools([get_weather])
    called = streamed(tools, [WEATHER])
    assert "18 degrees in Paris" in streamed(tools, [WEATHER, called, *outputs(called)]).text


def test_parallel_calls_are_all_answered():
    tools = model().bind_tools([get_weather])
    asked = HumanMessage("What is the weather in Paris and London? Use the tool.")
    called = streamed(tools, [asked])
    assert [call["args"]["city"] for call in called.tool_calls] == ["Paris", "London"]
    text = tools.invoke([asked, called, *outputs(called)]).text
    assert "Paris" in text
    assert "London" in text


def test_structured_output_comes_by_a_schema():
    city = model().with_structured_output(City, method="json_schema", strict=True).invoke("Tell me of Paris.")
    assert isinstance(city, City)


def test_a_stateless_tool_loop_sends_reasoning_back_sealed():
    kept = model(store=False, include=["reasoning.encrypted_content"], output_version="responses/v1")
    tools = kept.bind_tools([get_weather])
    called = tools.invoke([WEATHER])
    (reasoning,) = [block for block in called.content if block["type"] == "reasoning"]
    assert reasoning["encrypted_content"]
    assert "18 degrees in Paris" in tools.invoke([WEATHER, called, *outputs(called)]).text


def test_a_summary_of_reasoning_is_a_block_of_the_streamed_message():
    message = streamed(model(reasoning={"effort": "low", "summary": "auto"}), "Say hello.")
    assert next(block["reasoning"] for block in message.content_blocks if block["type"] == "reasoning")


def blocks(message, kind):
    """Its blocks of a kind, as OpenAI has them."""
    return [block for block in message.content if block["type"] == kind]


def test_a_call_of_a_server_s_tool_waits_for_an_approval():
    server = {"type": "mcp", "server_label": "maths", "server_url": os.environ["MCP_URL"], "allowed_tools": ["add"]}
    adding = model().bind_tools([server])
    asked = adding.invoke("What is 2 plus 40? Use the add tool.")
    (request,) = blocks(asked, "mcp_approval_request")
    approval = {"type": "mcp_approval_response", "approve": True, "approval_request_id": request["id"]}
    made = adding.invoke([HumanMessage([approval])], previous_response_id=asked.response_metadata["id"])
    assert blocks(made, "mcp_call")[0]["output"] == "42"
    assert "42" in made.text


def test_code_runs_and_is_sent_back():
    running = model(include=["code_interpreter_call.outputs"]).bind_tools(
        [{"type": "code_interpreter", "container": {"type": "auto"}}]
    )
    question = HumanMessage("Use python: n = 6 * 7; print(n)")
    made = running.invoke([question])
    (call,) = blocks(made, "code_interpreter_call")
    assert call["outputs"] == [{"type": "logs", "logs": "42\n"}]
    assert "43" in running.invoke([question, made, HumanMessage("Use python: print(n + 1)")]).text


def test_a_search_of_the_web_is_cited_and_sent_back():
    searching = model().bind_tools([{"type": "web_search"}])
    question = HumanMessage('Search the web for "high water" please.')
    for made in (searching.invoke([question]), streamed(searching, [question])):
        assert [call["action"]["type"] for call in blocks(made, "web_search_call")] == ["search", "open_page"]
        (cited,) = [note for block in blocks(made, "text") for note in block.get("annotations", [])]
        assert (cited["type"], cited["title"]) == ("url_citation", "Tides")
        assert searching.invoke([question, made, HumanMessage("Say hello.")]).text


def test_a_search_of_files_has_results():
    searching = model(include=["file_search_call.results"]).bind_tools(
        [{"type": "file_search", "vector_store_ids": ["vs_1"]}]
    )
    question = HumanMessage('Search my files for "tides".')
    made = searching.invoke([question])
    (search,) = blocks(made, "file_search_call")
    assert [each["filename"] for each in search["results"]] == ["tides.md", "moon.md"]
    assert searching.invoke([question, made, HumanMessage("Say hello.")]).text
