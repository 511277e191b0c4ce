"""`harmonium replay`: the user's turns of a conversation, asked once more of another model, or with other instructions.

No client's tool runs: a call gets the outcome that was recorded, so nothing outside is changed twice.
"""

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from shutil import get_terminal_size
from typing import Annotated, NamedTuple

from service.commands.arguments import EXIT_USAGE, TALK, command_line, option
from service.features.client import printing
from service.features.client.asking import why_not
from service.features.client.errors import ClientError
from service.features.client.options import AsJson, Id, talking
from service.features.client.printing import Json
from service.features.client.reading import response_of, said_in, waited_for
from service.features.client.service import RemoteService
from service.features.trajectories.shapes import call_of, is_call
from service.features.trajectories.stories import is_outcome, outcome

_SAME = ("model", "instructions", "tool_choice", "parallel_tool_calls", "max_output_tokens", "max_tool_calls",
         "temperature", "top_p", "reasoning", "text", "truncation")  # fmt: skip
"""The members of the last response that requests of a replay have, too, beside `tools`."""

LATE = {"background": True, "background_options": {"completion_window": "8h"}}
"""It waits until nothing else waits or runs."""

MOST_ROUNDS = 100
"""The most answers to one turn of the user."""

UNKNOWN = "No outcome of this call was recorded. Go on without it."
_ANSWERED = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
"""The calls whose outcome can be a text."""

app = command_line()


class AskedTurn(NamedTuple):
    """Messages of the user, and the items that followed at first, and those of the replay."""

    given: list[Json]
    then: list[Json]
    now: list[Json]


class RecordedCalls:
    """The calls of a conversation with their outcomes, each of which is given back once."""

    def __init__(self, items: Sequence[Json]) -> None:
        outcomes = {item["call_id"]: item for item in items if is_outcome(item)}
        made = [item for item in items if is_call(item) and item.get("call_id") in outcomes]
        self._left = [(call_of(call), outcomes[call["call_id"]]) for call in made]
        self.given = Counter[str]()
        """How many outcomes were given back, by how well they fit."""

    def outcome_of(self, call: Json) -> Json:
        """The outcome of the same call, else of the next one of the same tool, else words. Raises ClientError where it
        can't be words.
        """
        asked = call_of(call)
        same = [each for each in self._left if each[0]["function_name"] == asked["function_name"]]
        exact = [each for each in same if each[0]["arguments"] == asked["arguments"]]
        for found in (exact or same)[:1]:
            self._left.remove(found)
            self.given["recorded" if exact else "of other arguments"] += 1
            return {**found[1], "call_id": call["call_id"]}
        if call["type"] not in _ANSWERED:
            raise ClientError(f"the model makes a {call['type']} without a recorded outcome")
        self.given["not recorded"] += 1
        return outcome(call["call_id"], UNKNOWN) | {"type": _ANSWERED[call["type"]]}


def asked_turns(items: Iterable[Json]) -> list[AskedTurn]:
    """The turns of the user, from the first message that isn't the model's on."""
    turns = list[AskedTurn]()
    for item in items:
        if item.get("type", "message") == "message" and item["role"] != "assistant":
            if not turns or turns[-1].then:
                turns.append(AskedTurn([], [], []))
            turns[-1].given.append(item)
        elif turns:
            turns[-1].then.append(item)
    return turns


def _ask_again(service: RemoteService, body: Json, turn: AskedTurn, calls: RecordedCalls, before: str | None) -> str:
    """Have a turn of the user answered; the id of its last response. Raises ClientError."""
    given = turn.given
    for _ in range(MOST_ROUNDS):
        asked = body | {"input": given, "previous_response_id": before}
        id = str(service.call("POST", "/v1/responses", asked)["id"])
        try:
            made = waited_for(service, id, None)
        except KeyboardInterrupt:
            service.call("POST", f"/v1/responses/{id}/cancel")
            raise
        if (reason := why_not(made)) is not None:
            raise ClientError(f"{made['id']}: {reason}")
        before, output = str(made["id"]), made["output"]
        answered = {item["call_id"] for item in output if is_outcome(item)}
        mine = [each for each in output if each.get("call_id") and each["call_id"] not in answered]
        given = [calls.outcome_of(call) for call in mine]
        turn.now.extend([*output, *given])
        if not given:
            return before
    raise ClientError(f"{before}: the model calls tools without an end")


def _beside(turn: AskedTurn, columns: int) -> Iterator[str]:
    """The lines of what followed at first and in the replay, beside each other."""
    width = (columns - 3) // 2
    sides = [
        [
            piece
            for paragraph in printing.transcript(items)
            for line in printing.harmless(paragraph).expandtabs(4).split("\n")
            for piece in textwrap.wrap(line, width) or [""]
        ]
        for items in (turn.then, turn.now)
    ]
    for left, right in zip_longest(*sides, fillvalue=""):
        yield f"{left:<{width}} │ {right}"


@app.command(rich_help_panel=TALK)
@talking
def replay(
    service: RemoteService,
    id: Id,
    model: Annotated[str | None, option("--model", "-m", "NAME", "The other model.")] = None,
    instructions: Annotated[str | None, option("--instructions", "-s", "WORDS", "Other instructions.")] = None,
    as_json: AsJson = False,
) -> None:
    """Send the user's turns up to a response again, to another model or with other instructions, and compare
    the answers (experimental). Calls get their recorded outcomes. All other responses go first. Ctrl-C cancels it.
    """
    changes = {"model": model, "instructions": instructions}
    changes = {name: value for name, value in changes.items() if value is not None}
    if not changes:
        raise ClientError("give --model, --instructions or both", EXIT_USAGE)
    response, items, last = response_of(service, id), said_in(service, id), None
    body = {name: response[name] for name in _SAME if response.get(name) is not None} | changes | LATE
    tools = [tool for tool in response["tools"] if tool["type"] != "mcp"]
    body |= {"tools": tools, "metadata": {"replay_of": id}}
    turns, calls = asked_turns(items), RecordedCalls(items)
    calls.given["without MCP servers"] = len(response["tools"]) - len(tools)
    if not turns:
        raise ClientError(f"{id} has no message of a user")
    for turn in turns:
        last = _ask_again(service, body, turn, calls, last)
        if not as_json:
            printing.bold("\n".join(printing.transcript(turn.given)))
            for line in _beside(turn, get_terminal_size().columns):
                printing.out(line)
    link = f"{service.url}/console#/compare/{id}/{last}"
    shown = {
        "id": id,
        "replay": last,
        "compare": link,
        "calls": +calls.given,
        "turns": [each._asdict() for each in turns],
    }
    printing.out(json.dumps(shown) if as_json else link)
    printing.remark(", ".join(f"{count} {what}" for what, count in (+calls.given).items()) or "no calls")
