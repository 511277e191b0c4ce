"""Haystack's generator for the Responses API: answers, streams, tools in an agent, schemas, and sealed reasoning."""

import json
import os

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from pydantic import BaseModel

WEATHER = ChatMessage.from_user("What is the weather in Paris? Use the tool.")


class City(BaseModel):
    """A city."""

    city: str
    days: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def generator(**wanted):
    return OpenAIResponsesChatGenerator(
        model=os.environ["MODEL"], api_base_url=os.environ["OPENAI_BASE_URL"], generation_kwargs=wanted, max_retries=0
    )


def said(generator, *messages, **options):
    """The reply to some messages."""
    return generator.run(list(messages), **options)["replies"][0]


def test_a_stream_has_the_reasoning_once():
    pieces = []
    reply = said(
        generator(reasoning={"effort": "low", "summary": "auto"}),
        ChatMessage.from_user("Count to 3."),
        streaming_callback=pieces.append,
    )
    assert reply.text == "1\n2\n3"
    assert "".join(piece.content for piece in pieces) == "1\n2\n3"
    thoughts = "".join(piece.reasoning.reasoning_text for piece in pieces if piece.reasoning)
    assert thoughts.count("count to 3") == 1


def test_sealed_reasoning_is_sent_back():
    sealed = generator(store=False, include=["reasoning.encrypted_content"])
    asked = ChatMessage.from_user("My name is Ada.")
    reply = said(sealed, asked)
    assert reply.reasoning is not None
    assert said(sealed, asked, reply, ChatMessage.from_user("What is my name?")).text == "Your name is Ada."


def test_an_agent_calls_a_tool_in_a_stream():
    pieces = []
    agent = Agent(chat_generator=generator(), tools=[get_weather], streaming_callback=pieces.append)
    assert "18 degrees in Paris" in agent.run([WEATHER])["last_message"].text
    assert "18 degrees in Paris" in "".join(piece.content for piece in pieces)


def test_an_answer_keeps_to_a_model():
    reply = said(generator(text_format=City), ChatMessage.from_user("Plan 3 days in Oslo."))
    assert City(**json.loads(reply.text)) == City(city="Oslo", days=3)
