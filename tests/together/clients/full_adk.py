"""Google's ADK by LiteLLM: six turns with a tool each, of which one is stopped amid its tool."""

import os

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

CITIES = ["Paris", "London", "Berlin", "Madrid", "Rome", "Vienna"]
WHO = {"user_id": "ada"}


class Stopped(BaseException):
    """Ends a turn as a signal would."""


async def turns(name):
    stopping = {"Berlin"}

    def get_weather(city: str) -> str:
        """The weather of a city."""
        if city in stopping:
            stopping.remove(city)
            raise Stopped
        return f"18 degrees in {city}"

    model = LiteLlm(model=name, api_base=os.environ["OPENAI_BASE_URL"])
    runner = InMemoryRunner(agent=Agent(name="clerk", model=model, tools=[get_weather]), app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", **WHO)
    for city in CITIES:
        try:
            said = await turn(runner, session.id, city)
        except Stopped:
            said = await turn(runner, session.id, city)
        assert f"18 degrees in {city}" in said, said
    assert not stopping


async def turn(runner, session, city):
    """The answer of the agent to a question."""
    asked = types.Content(role="user", parts=[types.Part(text=f"What is the weather in {city}? Use the tool.")])
    events = runner.run_async(session_id=session, new_message=asked, **WHO)
    parts = [part async for event in events if event.content for part in event.content.parts]
    return "".join(part.text or "" for part in parts)


async def test_six_turns_with_tools_by_chat():
    await turns(f"openai/{os.environ['MODEL']}")


async def test_six_turns_with_tools_by_responses():
    await turns(f"openai/responses/{os.environ['MODEL']}")
