"""Microsoft's Agent Framework: sessions, tools, structured output, and background responses with tokens to go on."""

import asyncio
import os
from typing import Annotated

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
from pydantic import BaseModel

WEATHER = "What is the weather in Paris? Use the tool."


class City(BaseModel):
    """A city."""

    city: str
    days: int


def get_weather(city: Annotated[str, "The city."]) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def agent(**more):
    client = OpenAIChatClient(model=os.environ["MODEL"], base_url=os.environ["OPENAI_BASE_URL"], api_key="none")
    return Agent(client, **more)


async def test_a_session_is_continued():
    ada = agent()
    session = ada.create_session()
    await ada.run("My name is Ada.", session=session)
    assert (await ada.run("What is my name?", session=session)).text == "Your name is Ada."
    assert session.service_session_id.startswith("resp_")


async def test_a_tool_is_called_in_a_stream():
    stream = agent(tools=[get_weather]).run(WEATHER, stream=True)
    pieces = [update.text async for update in stream]
    assert "18 degrees in Paris" in "".join(pieces)
    assert "18 degrees in Paris" in (await stream.get_final_response()).text


async def test_an_answer_keeps_to_a_model():
    answer = await agent().run("Plan 3 days in Oslo.", options={"response_format": City})
    assert answer.value == City(city="Oslo", days=3)


async def test_a_background_response_is_asked_for_until_it_is_there():
    waiting = agent()
    session = waiting.create_session()
    answer = await waiting.run("Count to 30.", session=session, options={"background": True})
    assert answer.continuation_token is not None
    while answer.continuation_token is not None:
        await asyncio.sleep(0.05)
        answer = await waiting.run(
            session=session, options={"background": True, "continuation_token": answer.continuation_token}
        )
    assert answer.text.split()[-1] == "30"


async def test_a_background_stream_that_broke_off_is_gone_on_with():
    waiting = agent()
    session = waiting.create_session()
    token = None
    async for update in waiting.run("Count to 300.", stream=True, session=session, options={"background": True}):
        token = update.continuation_token or token
        if token is not None:
            break
    assert token is not None
    stream = waiting.run(stream=True, session=session, options={"background": True, "continuation_token": token})
    text = [update.text async for update in stream]
    assert "299\n300" in "".join(text)
