"""OpenAI's Agents SDK with its own traces, which its own exporters send to where TRACES_URLS says, comma-separated."""

import os

from agents import Agent, ModelSettings, Runner, flush_traces, function_tool, set_trace_processors, trace
from agents.tracing.processors import BackendSpanExporter, BatchTraceProcessor

MODEL, GROUP = os.environ["MODEL"], os.environ["GROUP"]

set_trace_processors(
    [BatchTraceProcessor(BackendSpanExporter(endpoint=url)) for url in os.environ["TRACES_URLS"].split(",")]
)


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"marmalade at 18 degrees in {city}"


async def test_a_workflow_with_a_handoff_a_tool_and_two_runs_is_traced():
    settings = ModelSettings(tool_choice="required")
    other = Agent(name="Weather agent", model=MODEL, tools=[get_weather], model_settings=settings)
    first = Agent(name="Triage", model=MODEL, handoffs=[other])
    with trace("Trip", group_id=f"{GROUP}-7", metadata={"note": "marmalade"}):
        result = await Runner.run(first, "Please transfer me to the weather agent, who knows marmalade.")
        assert "18 degrees" in result.final_output
        again = await Runner.run(Agent(name="Poet", model=MODEL), "Say hello.")
        assert again.final_output
    flush_traces()
