"""Conversations to look at: with forks, with calls, in the background, cut off; and trees that are only told."""

from collections.abc import Iterator
from typing import Any

from tests.support.service.process import MODEL, ServiceProcess

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


def said(service: ServiceProcess, text: str, parent: str | None = None, *, key: str = "none", **options: Any) -> str:
    """Ask for a response; its id."""
    return service.client(key).responses.create(model=MODEL, input=text, previous_response_id=parent, **options).id


def fill(service: ServiceProcess) -> tuple[str, str]:
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


def grown(turns: int, *, forks: int = 0) -> dict[str, Any]:
    """A tree as the console's API tells it: a line of so many turns, and forks of its root besides."""
    ids = [f"resp_{number:048x}" for number in range(turns + forks)]
    return {
        "object": "console.tree",
        "id": ids[0],
        "asked": ids[-1],
        "last_used_at": 1_790_000_000,
        "turns": list(_turns(ids, turns)),
        "turns_complete": True,
        "excerpts_complete": True,
    }


def _turns(ids: list[str], line: int) -> Iterator[dict[str, Any]]:
    for number, id in enumerate(ids):
        is_fork = number >= line
        yield {
            "id": id,
            "kind": "response",
            "status": "completed",
            "created_at": 1_790_000_000 + number,
            "model": MODEL,
            "input_tokens": 1,
            "output_tokens": 1,
            "input": f"Question {number}",
            "output": f"Answer {number}",
            "parent": ids[0] if is_fork else ids[number - 1] if number else None,
            "depth": 2 if is_fork else number + 1,
            "used_at": 1_790_000_000 + number,
        }
