"""Clients that send their whole history with every turn, in either API for that: each conversation is one chain."""

import json
import os
import urllib.request
from functools import reduce
from operator import add
from uuid import uuid4

import litellm
from agents import Agent as AgentsAgent
from agents import AsyncOpenAI as AgentsClient
from agents import OpenAIChatCompletionsModel, Runner, function_tool
from anthropic import Anthropic
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel

MODEL = os.environ["MODEL"]
TURNS = 20
WEATHER = "What is the weather in {}? Use the tool."
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": CITY}}


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


def turns():
    """The words of the user, of which every other asks for a tool; the first are like no other conversation's."""
    return [
        f"My name is {uuid4().hex}.",
        *(WEATHER.format(f"City{turn}") if turn % 2 else f"Count to {turn}." for turn in range(1, TURNS)),
    ]


def ask(path):
    with urllib.request.urlopen(os.environ["OPENAI_BASE_URL"].removesuffix("v1") + path) as answer:
        return json.load(answer)


def is_one_chain(said):
    """The only conversation with these words is one chain: a response for each turn, and one more for each call."""
    (tree,) = [each for each in ask("console/api/trees?limit=100")["data"] if said[0] in (each["title"] or "")]
    depths = [turn["depth"] for turn in ask(f"console/api/trees/{tree['id']}")["turns"]]
    assert sorted(depths) == list(range(1, TURNS + TURNS // 2 + 1)), depths


def completed(create, streams):
    """A conversation by a function that makes a completion; every third answer is streamed where `streams` can."""
    said, messages = turns(), []
    for number, text in enumerate(said):
        messages.append({"role": "user", "content": text})
        while True:
            message = streams(messages) if number % 3 == 2 else create(messages)
            messages.append(message)
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                output = get_weather(**json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    is_one_chain(said)


def test_openai():
    client, asked = OpenAI(max_retries=0), {"model": MODEL, "tools": [FUNCTION]}

    def create(messages):
        made = client.chat.completions.create(messages=messages, **asked)
        return made.choices[0].message.model_dump(exclude_none=True)

    def stream(messages):
        with client.chat.completions.stream(messages=messages, **asked) as events:
            made = events.get_final_completion()
        return made.choices[0].message.model_dump(exclude_none=True)

    completed(create, stream)


def test_litellm():
    asked = {"model": f"openai/{MODEL}", "tools": [FUNCTION], "num_retries": 0}

    def create(messages):
        return litellm.completion(messages=messages, **asked).choices[0].message.model_dump(exclude_none=True)

    def stream(messages):
        pieces = list(litellm.completion(messages=messages, stream=True, **asked))
        return litellm.stream_chunk_builder(pieces, messages).choices[0].message.model_dump(exclude_none=True)

    completed(create, stream)


def test_langchain():
    model = ChatOpenAI(model=MODEL, use_responses_api=False, max_retries=0).bind_tools([tool(get_weather)])
    said, messages = turns(), []
    for number, text in enumerate(said):
        messages.append(HumanMessage(text))
        while True:
            message = reduce(add, model.stream(messages)) if number % 3 == 2 else model.invoke(messages)
            messages.append(message)
            if not message.tool_calls:
                break
            messages += [
                ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]) for call in message.tool_calls
            ]
    is_one_chain(said)


def test_haystack():
    weather = Tool("get_weather", "The weather of a city.", CITY, get_weather)
    generator = OpenAIChatGenerator(model=MODEL, api_base_url=os.environ["OPENAI_BASE_URL"], tools=[weather])
    said, messages = turns(), []
    for text in said:
        messages.append(ChatMessage.from_user(text))
        while True:
            (reply,) = generator.run(messages)["replies"]
            messages.append(reply)
            if not reply.tool_calls:
                break
            messages += [ChatMessage.from_tool(get_weather(**each.arguments), each) for each in reply.tool_calls]
    is_one_chain(said)


async def test_pydantic_ai():
    agent, said, history = PydanticAgent(OpenAIChatModel(MODEL), tools=[get_weather]), turns(), []
    for text in said:
        history = (await agent.run(text, message_history=history)).all_messages()
    is_one_chain(said)


async def test_agents():
    model = OpenAIChatCompletionsModel(MODEL, openai_client=AgentsClient())
    agent, said, history = AgentsAgent(name="A", model=model, tools=[function_tool(get_weather)]), turns(), []
    for text in said:
        history = (await Runner.run(agent, [*history, {"role": "user", "content": text}])).to_input_list()
    is_one_chain(said)


def test_anthropic():
    client = Anthropic(base_url=os.environ["OPENAI_BASE_URL"].removesuffix("/v1"), api_key="none", max_retries=0)
    tool = {"name": "get_weather", "description": "Weather.", "input_schema": CITY}
    asked = {"model": MODEL, "max_tokens": 4096, "tools": [tool], "thinking": {"type": "adaptive"}}
    said, messages = turns(), []
    for number, text in enumerate(said):
        content = text
        while content:
            messages.append({"role": "user", "content": content})
            if number % 3 == 2:
                with client.messages.stream(messages=messages, **asked) as stream:
                    made = stream.get_final_message()
            else:
                made = client.messages.create(messages=messages, **asked)
            messages.append({"role": "assistant", "content": made.content})
            calls = [block for block in made.content if block.type == "tool_use"]
            content = [
                {"type": "tool_result", "tool_use_id": call.id, "content": get_weather(**call.input)} for call in calls
            ]
    is_one_chain(said)
