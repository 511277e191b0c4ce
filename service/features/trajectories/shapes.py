"""Trajectories as others read them, a JSON text each, piece by piece: a prompt's ids are repeated in each generation.

ATIF is harbor's (version 1.7, models/trajectories): steps of a user, a system and an agent, an agent's with calls, what
came of these, and ids. Gym is NeMo Gym's (openai_utils.py): the request that began it and one response, in whose
output the last item of each generation has the ids. Neither has a place for everything: `extra` and `harmonium` have
the rest. Pictures are left out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from math import isfinite
from typing import Any, Literal, cast

import msgspec

from service.features.trajectories.formats import text_of
from service.features.trajectories.stories import Item, inner
from service.features.trajectories.turns import TakenTurn, TurnGeneration

Form = Literal["atif", "gym"]

US = 1_000_000

_SOURCES = {"user": "user", "assistant": "agent"}
_ASKED = ("instructions", "tools", "model", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls")

_GIVEN = ("arguments", "input", "action", "operation", "code", "queries")
"""The members of which a call has one."""

_encode = msgspec.json.encode


Facts = dict[str, Any]
"""A trajectory without its turns: the `id` of its last one, which names it, of its `tree`, and of all its `turns`;
whether none was left out (`turns_complete`); with how many turns it begins that an older trajectory has (`shared`); and
what was put on turns later, by their ids (`notes`).
"""


def text_in(item: Item) -> str:
    """The text of an item: of a message, of reasoning, or of what came of a call."""
    texts = [text_of(item.get(name), Counter()) for name in ("summary", "content", "output", "outputs")]
    return "\n".join(filter(None, texts))


def is_call(item: Item) -> bool:
    return str(item.get("type")).endswith("_call")


def call_of(item: Item) -> Item:
    """A call in ATIF, whose arguments are an object."""
    given: Any = next((item[name] for name in _GIVEN if name in item), None)
    with suppress(msgspec.DecodeError):
        given = msgspec.json.decode(given) if isinstance(given, str) else given
    arguments = cast(Item, given) if isinstance(given, dict) else {"input": given}
    name, id = item.get("name") or item.get("type"), item.get("call_id") or item.get("id")
    return {"tool_call_id": id, "function_name": name, "arguments": arguments}


def generations_of(taken: TakenTurn) -> Iterator[tuple[TurnGeneration, list[Item]]]:
    """The generations of a turn, each with its items: also those that no message shows, before the next that is."""
    left = list(enumerate(taken.output))
    made = (
        taken.generations or [TurnGeneration(frozenset(), cut={"why": "not as stored", "at": None, "of": None})]
        if left
        else []
    )
    for place, each in enumerate(made):
        last = len(left) if place == len(made) - 1 else sum(1 for at, _ in left if at <= max(each.items))
        own, left = left[:last], left[last:]
        yield each, [item for _, item in own]


# --- ATIF ---


class _Steps:
    """The steps of a trajectory. A turn's wait for what comes of their calls in the next input."""

    def __init__(self) -> None:
        self._waiting: list[Item] = []
        self._count = 0

    def add(self, source: str, taken: TakenTurn, shared: bool, **fields: Any) -> None:
        """The next step; of a turn that is `shared` with an older trajectory a copied one."""
        self._count += 1
        at = datetime.fromtimestamp(taken.turn.created / US, UTC).isoformat()
        extra = {"turn": taken.turn.id, "status": taken.turn.status}
        step: Item = {"step_id": self._count, "timestamp": at, "source": source, "message": "", "extra": extra}
        self._waiting.append(step | fields | ({"is_copied_context": True} if shared else {}))

    def answer(self, item: Item, taken: TakenTurn, shared: bool) -> None:
        """The outcome of a call: of the step that made it, if that still waits, else one of its own."""
        call, content = item.get("call_id"), text_in(item)
        for step in reversed(self._waiting):
            if any(each["tool_call_id"] == call for each in step.get("tool_calls", ())):
                results = step.setdefault("observation", {"results": []})["results"]
                results.append({"source_call_id": call, "content": content})
                return
        self.add("system", taken, shared, observation={"results": [{"content": content}]})

    def ready(self) -> list[bytes]:
        """The steps that wait for nothing any more, each behind a comma but the first of all."""
        done, self._waiting = self._waiting, []
        return [(b"," if step["step_id"] > 1 else b"") + _encode(step) for step in done]


def atif(facts: Facts, last: Any, version: str, turns: Iterable[TakenTurn]) -> Iterator[bytes]:
    """A trajectory in ATIF. `last` is its last response, `version` ours."""
    names, tools = ("name", "description", "parameters"), list[Item]()
    for tool in last.get("tools") or ():
        if tool.get("type") == "function":
            tools.append({"type": "function", "function": {name: tool.get(name) for name in names}})
    agent = {"name": "harmonium", "version": version, "model_name": last.get("model")}
    agent |= {"tool_definitions": tools} if tools else {}
    ids = {"schema_version": "ATIF-v1.7", "session_id": facts["tree"], "trajectory_id": facts["id"]}
    yield _open(ids | {"agent": agent, "extra": facts}) + b',"steps":['
    steps = _Steps()
    for place, taken in enumerate(turns):
        shared = place < facts["shared"]["turns"]
        for item in taken.input:
            if item.get("call_id") and not is_call(item):
                steps.answer(item, taken, shared)
            else:
                source = "agent" if is_call(item) or item["type"] == "reasoning" else ""
                source = source or _SOURCES.get(item.get("role", ""), "system")
                steps.add(
                    source, taken, shared, **(_step_of([item]) if source == "agent" else {"message": text_in(item)})
                )
        yield from steps.ready()
        for made, items in generations_of(taken):
            model = {"llm_call_count": 1, "model_name": taken.response.get("model")}
            steps.add("agent", taken, shared, **model, **_step_of(items), metrics=_metrics(taken, made))
    yield from steps.ready()
    yield b"]}"


def _step_of(items: list[Item]) -> Item:
    """The members of an agent's step that say what these items do."""
    step: Item = {"message": "\n".join([text_in(item) for item in items if item["type"] == "message"])}
    if thoughts := [text_in(item) for item in items if item["type"] == "reasoning"]:
        step["reasoning_content"] = "\n".join(thoughts)
    if calls := list(filter(is_call, items)):
        step["tool_calls"] = list(map(call_of, calls))
        told = [{"source_call_id": call_of(item)["tool_call_id"], "content": text_in(item)} for item in calls]
        if results := [each for each in told if each["content"]]:
            step["observation"] = {"results": results}
    return step


def _metrics(taken: TakenTurn, made: TurnGeneration) -> Item:
    usage: Any = inner(taken.response, "usage") or {}
    counted: list[Any] = [usage.get("input_tokens"), usage.get("output_tokens")]
    counted.append(inner(usage.get("input_tokens_details"), "cached_tokens") or None)
    if len(taken.generations) > 1:  # usage counts all of them
        counted = [made.prompt and len(made.prompt), made.sampled and len(made.sampled), None]
    metrics = dict(zip(("prompt_tokens", "completion_tokens", "cached_tokens"), counted, strict=True))
    metrics |= {"prompt_token_ids": made.prompt and made.prompt.tolist(), "logprobs": made.logprobs}
    metrics |= {"completion_token_ids": made.sampled and made.sampled.tolist(), "extra": made.cut and {"cut": made.cut}}
    return {name: value for name, value in metrics.items() if value is not None}


# --- Gym ---


def gym(facts: Facts, last: Any, version: str, turns: Iterable[TakenTurn]) -> Iterator[bytes]:
    """A trajectory as a rollout of NeMo Gym, with the newest number that was noted as its reward."""
    asked, separator, begun = list[Item](), b"", False
    for taken in turns:
        given = [each for item in taken.input for each in _plain(item)]
        if not begun:
            asked += given
            given.clear()
            begun = bool(taken.output)
            if begun:
                yield _rollout(facts, last, asked, taken.response)
        for made, items in generations_of(taken):
            plain = [each for item in items for each in _plain(item)]
            if own := [each for each in plain if each["type"] != "function_call_output"]:
                ids = {"prompt_token_ids": made.prompt, "generation_token_ids": made.sampled}
                own[-1] |= {name: each and each.tolist() for name, each in ids.items()}
                own[-1] |= {"generation_log_probs": made.logprobs, "cut": made.cut}
            given += plain
        for item in given:
            yield separator + _encode(item)
            separator = b","
    yield b"]}}" if begun else _rollout(facts, last, asked, {}) + b"]}}"


def _rollout(facts: Facts, last: Any, asked: list[Item], first: Any) -> bytes:
    """A rollout that is open where the items of its output come."""
    params = {name: first[name] for name in _ASKED if name in first} | {"input": asked}
    reward = Item()
    for note in chain.from_iterable(facts["notes"].values()):
        with suppress(LookupError, ValueError):
            reward = {"reward": number} if isfinite(number := float(note["reward"])) else reward
    response = {name: value for name, value in last.items() if name != "output"}
    head = _open({"responses_create_params": params, "harmonium": facts} | reward)
    return head + b',"response":' + _open(response) + b',"output":['


def _plain(item: Item) -> Iterator[Item]:
    """An item as those that Gym knows, none for one without such a form; calls of any kind as calls of functions."""
    kind = item.get("type", "message")
    if kind == "message":
        yield {"type": "message", "status": "completed", **item}
    elif kind == "reasoning":
        yield {**item, "summary": item.get("summary") or []}
    elif is_call(item):
        call = call_of(item)
        id, arguments = call["tool_call_id"], _encode(call["arguments"]).decode()
        yield {"type": "function_call", "call_id": id, "name": call["function_name"], "arguments": arguments}
        if text := text_in(item):
            yield {"type": "function_call_output", "call_id": id, "output": text}
    elif item.get("call_id"):
        yield {"type": "function_call_output", "call_id": item["call_id"], "output": text_in(item)}


def _open(members: Item) -> bytes:
    """An object that is still open."""
    return _encode(members).removesuffix(b"}")


FORMS = {"atif": atif, "gym": gym}
