"""Conversations to look at: with forks, with calls, in the background, cut off."""

from typing import Any

from tests.support.service.process import MODEL, Served

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def said(service: Served, text: Any, parent: str | None = None, *, key: str = "none", **options: Any) -> str:
    """Ask for a response, by words or items; its id."""
    return service.client(key).responses.create(model=MODEL, input=text, previous_response_id=parent, **options).id


def fill(service: Served) -> tuple[str, str]:
    """Have conversations; the ids of two turns of the last one that share a part."""
    said(service, "Tell me a story.", max_output_tokens=16)
    said(service, "What is the weather in Paris?", tools=[WEATHER])
    said(service, "Write a story of 200 words.", metadata={"team": "letters"})
    root = said(
        service,
        "My name is Ada. I am planning a week in Lisbon.",
        instructions="Answer in a friendly tone, and be brief.",
        metadata={"project": "travel", "customer": "4711"},
    )
    asked = said(service, "What is my name?", root)
    said(service, "Tell me a story.", root)
    counted = said(service, "Count to 5.", asked)
    left = said(service, "What is my name?", counted)
    turn = said(service, "Count to 20.", asked)
    said(service, "Count to 30.", turn, background=True)
    for number in (3, 4):
        turn = said(service, f"Count to {number}.", turn)
    fork = said(service, "Write a story of 80 words.", turn)
    said(service, "Count to 2.", fork)
    with service.client().responses.create(
        model=MODEL, input="What is my name?", previous_response_id=turn, background=True, stream=True
    ) as stream:
        return left, next(event.response.id for event in stream if event.type == "response.completed")
