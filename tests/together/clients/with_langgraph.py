"""LangGraph's agent over the Responses API: six turns of a thread with a tool each, one stopped amid its tool."""

import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

CITIES = ["Paris", "London", "Berlin", "Madrid", "Rome", "Vienna"]
THREAD = {"configurable": {"thread_id": "1"}}

stopping = set()


class Stopped(BaseException):
    """Ends a run as a signal would."""


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    if city in stopping:
        stopping.remove(city)
        raise Stopped
    return f"18 degrees in {city}"


def threads(**options):
    model = ChatOpenAI(model=os.environ["MODEL"], use_responses_api=True, max_retries=0, **options)
    agent = create_react_agent(model, [get_weather], checkpointer=InMemorySaver())
    for city in CITIES:
        asked = {"messages": [("user", f"What is the weather in {city}? Use the tool.")]}
        if city == "Berlin":
            stopping.add(city)
            try:
                agent.invoke(asked, THREAD)
            except Stopped:
                asked = None  # it goes on where it was stopped
            assert asked is None, "the tool was never called"
        messages = agent.invoke(asked, THREAD)["messages"]
        assert f"18 degrees in {city}" in messages[-1].text, messages[-1]
    return messages


def test_six_turns_with_tools_are_one_thread_though_one_was_stopped_amid_its_tool():
    assert len(threads()) == 4 * len(CITIES)


def test_so_they_are_by_previous_response_id():
    assert len(threads(use_previous_response_id=True)) == 4 * len(CITIES)
