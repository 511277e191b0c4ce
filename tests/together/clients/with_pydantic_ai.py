"""Pydantic AI: tools, streaming, structured output by a tool and by a schema, history of both kinds, thinking."""

import os

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import NativeToolReturnPart, ThinkingPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.native_tools import CodeExecutionTool, FileSearchTool, MCPServerTool, WebSearchTool
from pydantic_ai.profiles.openai import OpenAIModelProfile

WEATHER = "What is the weather in Paris? Use the tool."


class City(BaseModel):
    city: str
    inhabitants: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(profile=None, **options):
    return Agent(OpenAIResponsesModel(os.environ["MODEL"], profile=profile), **options)


def parts(result, kind):
    return [part for message in result.all_messages() for part in message.parts if isinstance(part, kind)]


async def test_parallel_calls_are_all_answered():
    result = await agent(tools=[get_weather]).run("What is the weather in Paris and London? Use the tool.")
    assert len(parts(result, ToolReturnPart)) == 2
    assert "18 degrees in London" in result.output


async def test_an_answer_behind_a_tool_call_is_streamed():
    async with agent(tools=[get_weather]).run_stream(WEATHER) as result:
        assert "18 degrees in Paris" in "".join([piece async for piece in result.stream_text(delta=True)])


async def test_structured_output_comes_by_a_schema():
    assert isinstance((await agent(output_type=NativeOutput(City)).run("Tell me of Paris.")).output, City)


async def test_what_was_said_is_recalled_by_previous_response_id():
    asked = agent()
    first = await asked.run("My name is Ada.")
    settings = OpenAIResponsesModelSettings(openai_previous_response_id="auto")
    second = await asked.run("What is my name?", message_history=first.all_messages(), model_settings=settings)
    assert "Ada" in second.output


async def test_a_history_without_a_store_brings_its_sealed_thinking_back():
    sealed = OpenAIModelProfile(openai_supports_encrypted_reasoning_content=True)
    asked = agent(sealed, tools=[get_weather], model_settings=OpenAIResponsesModelSettings(openai_store=False))
    first = await asked.run(f"My name is Ada. {WEATHER}")
    assert any(part.signature for part in parts(first, ThinkingPart))
    assert "Ada" in (await asked.run("What is my name?", message_history=first.all_messages())).output


async def test_a_summary_of_reasoning_is_thinking():
    settings = OpenAIResponsesModelSettings(openai_reasoning_effort="low", openai_reasoning_summary="auto")
    thinking = parts(await agent(model_settings=settings).run("Say hello."), ThinkingPart)
    assert thinking[0].content


async def run_by_the_service(tool, words):
    """What a tool that the service runs said, and the answer; once more with its history sent back."""
    using = agent(capabilities=[NativeTool(tool)])
    result = await using.run(words)
    again = await using.run("Say hello.", message_history=result.all_messages())
    assert again.output
    async with using.run_stream(words) as stream:
        assert await stream.get_output() == result.output
    return [part.content for part in parts(result, NativeToolReturnPart)], result.output


async def test_a_call_of_a_server_s_tool_is_made_by_the_service():
    server = MCPServerTool(id="maths", url=os.environ["MCP_URL"], allowed_tools=["add"])
    (_, said), answer = await run_by_the_service(server, "What is 2 plus 40? Use the add tool.")
    assert said["output"] == "42"
    assert "42" in answer


async def test_code_is_run_by_the_service():
    (said,), answer = await run_by_the_service(CodeExecutionTool(), "Use python: print(6 * 7)")
    assert said["status"] == "completed"
    assert "42" in answer


async def test_the_web_is_searched_by_the_service():
    said, answer = await run_by_the_service(WebSearchTool(), 'Search the web for "high water" please.')
    assert len(said) == 2
    assert "tides.md" in answer


async def test_files_are_searched_by_the_service():
    (said,), answer = await run_by_the_service(FileSearchTool(file_store_ids=["vs_1"]), 'Search my files for "tides".')
    assert said["status"] == "completed"
    assert "High water is at ten." in answer
