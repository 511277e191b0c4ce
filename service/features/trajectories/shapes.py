"""Trajectories as others read them, a JSON text each, piece by piece: a prompt's ids are repeated in each generation.

ATIF is harbor's (version 1.7, models/trajectories): steps of a user, a system and an agent, an agent's with calls, what
came of these, and ids. Gym is NeMo Gym's (openai_utils.py): the request that began it and one response, in whose
output the last item of each generation has the ids. Neither has a place for everything: `extra` and `harmonium` have
the rest. Pictures are left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, cast

import msgspec

from service.features.trajectories.turns import Cut, Generated, Item, TakenTurn, TrainedResponse

Form = Literal["atif", "gym"]
US = 1_000_000

_ROLES = {"user": "user", "system": "system", "developer": "system", "assistant": "agent"}
_ASKED = ("instructions", "tools", "model", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls")

_encode = msgspec.json.encode


class SharedTurns(msgspec.Struct, frozen=True):
    """The first `turns` of a trajectory are those of the older one that is named."""

    trajectory: str
    turns: int


class TrajectoryHead(NamedTuple):
    """A trajectory without its turns: the ids of its last turn, which name it, of its tree, and of all its turns; the
    response of the last; and who made it. `complete` is false where older turns were too many.
    """

    id: str
    tree: str
    turns: Sequence[str]
    last: bytes
    version: str
    shared: SharedTurns | None = None
    complete: bool = True
    notes: Mapping[str, Any] = {}
    """By the ids of its turns what was put on them later."""

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "tree": self.tree,
            "turns": list(self.turns),
            "turns_complete": self.complete,
            "shared": self.shared,
            "notes": self.notes,
        }


def text_in(item: Mapping[str, Any]) -> str:
    """The text of an item: of a message, of reasoning, or of what came of a call."""
    found = list[str]()
    for value in (item.get("summary"), item.get("content"), item.get("output")):
        parts = [value] if isinstance(value, str) else value
        for part in cast(list[Any], parts) if isinstance(parts, list) else ():
            text = part if isinstance(part, str) else part.get("text") or part.get("refusal")
            found += [text] if isinstance(text, str) else []
    return "\n".join(found)


def is_call(item: Item) -> bool:
    return str(item.get("type")).endswith("_call")


def generations_of(taken: TakenTurn) -> Iterator[tuple[Generated, list[Item]]]:
    """The generations of a turn, each with its items: also those that no message shows, before the next that is."""
    left = list(enumerate(taken.response.output))
    made = taken.generations or [Generated(frozenset(), cut=Cut("not as stored"))] if left else []
    for place, each in enumerate(made):
        last = len(left) if place == len(made) - 1 else sum(1 for at, _ in left if at <= max(each.items))
        own, left = left[:last], left[last:]
        yield each, [item for _, item in own]


# --- ATIF ---


class _Steps:
    """The steps of a trajectory. Those of the newest turn wait for what comes of their calls."""

    def __init__(self) -> None:
        self._waiting: list[Item] = []
        self._count = 0

    def add(self, source: str, taken: TakenTurn, *, shared: bool = False, **fields: Any) -> None:
        """The next step."""
        self._count += 1
        at = datetime.fromtimestamp(taken.turn.created / US, UTC).isoformat()
        step = {"step_id": self._count, "timestamp": at, "source": source, "message": "", **fields}
        step["extra"] = {"turn": taken.turn.id, "status": taken.turn.status, **fields.get("extra", {})}
        if shared:
            step["is_copied_context"] = True
        self._waiting.append(step)

    def answer(self, item: Item, taken: TakenTurn) -> None:
        """The outcome of a call: of the step that made it, if that still waits, else one of its own."""
        call, content = item.get("call_id"), text_in(item)
        for step in self._waiting:
            if any(each["tool_call_id"] == call for each in step.get("tool_calls", ())):
                results = step.setdefault("observation", {"results": []})["results"]
                results.append({"source_call_id": call, "content": content})
                return
        self.add("system", taken, observation={"results": [{"content": content}]})

    def ready(self) -> Iterator[bytes]:
        """The steps that wait for nothing any more."""
        done, self._waiting = self._waiting, []
        yield from (_encode(step) for step in done)


def atif(head: TrajectoryHead, turns: Iterable[TakenTurn]) -> Iterator[bytes]:
    """A trajectory in ATIF."""
    last = msgspec.json.decode(head.last, type=TrainedResponse)
    functions = [
        {"type": "function", "function": {name: tool.get(name) for name in ("name", "description", "parameters")}}
        for tool in last.tools
        if tool.get("type") == "function"
    ]
    agent = {"name": "harmonium", "version": head.version, "model_name": last.model}
    yield _opened(
        schema_version="ATIF-v1.7",
        session_id=head.tree,
        trajectory_id=head.id,
        agent=agent | ({"tool_definitions": functions} if functions else {}),
        extra=head.facts,
    )
    yield b',"steps":['
    steps, separator, sums = _Steps(), b"", [0, 0, 0]
    for place, taken in enumerate(turns):
        shared = head.shared is not None and place < head.shared.turns
        given = [item for item in taken.input if item.get("call_id") and not is_call(item)]
        for item in given:
            steps.answer(item, taken)
        for step in steps.ready():
            yield separator + step
            separator = b","
        for item in taken.input:
            if item not in given:
                source, fields = _given(item)
                steps.add(source, taken, shared=shared, **fields)
        for made, items in generations_of(taken):
            steps.add("agent", taken, shared=shared, **_agent_step(taken, made, items))
        usage = taken.response.counted
        counts = usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens
        sums = [total + (count or 0) for total, count in zip(sums, counts, strict=True)]
    for step in steps.ready():
        yield separator + step
        separator = b","
    totals = dict(zip(("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens"), sums, strict=True))
    yield b'],"final_metrics":' + _encode(totals) + b"}"


def _given(item: Item) -> tuple[str, Item]:
    """The source of a step for an item of an input, and its fields."""
    if item.get("type", "message") == "message":
        return _ROLES.get(str(item.get("role")), "system"), {"message": text_in(item)}
    if item.get("type") == "reasoning":
        return "agent", {"reasoning_content": text_in(item)}
    if is_call(item):
        return "agent", {"tool_calls": [_called(item)]}
    return "system", {"message": text_in(item), "extra": {"item": item.get("type")}}


def _called(item: Item) -> Item:
    """A call, whose arguments are an object."""
    arguments: Any = item.get("arguments", item.get("input", item.get("action", item.get("code"))))
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            arguments = {"input": arguments}
    arguments = cast(Item, arguments) if isinstance(arguments, dict) else {"input": arguments}
    name = item.get("name") or item.get("type")
    return {"tool_call_id": item.get("call_id") or item.get("id"), "function_name": name, "arguments": arguments}


def _agent_step(taken: TakenTurn, made: Generated, items: list[Item]) -> Item:
    usage, alone = taken.response.counted, len(taken.generations) < 2
    step: Item = {"llm_call_count": 1, "model_name": taken.response.model}
    step["message"] = "\n".join([text_in(item) for item in items if item.get("type") == "message"])
    if thoughts := [text_in(item) for item in items if item.get("type") == "reasoning"]:
        step["reasoning_content"] = "\n".join(thoughts)
    if calls := [item for item in items if is_call(item)]:
        step["tool_calls"] = [_called(item) for item in calls]
        results = [(item, text) for item in calls if (text := text_in(item))]
        if results:
            told = [
                {"source_call_id": item.get("call_id") or item.get("id"), "content": text} for item, text in results
            ]
            step["observation"] = {"results": told}
    metrics = {
        "prompt_tokens": usage.input_tokens if alone else None if made.prompt is None else len(made.prompt),
        "completion_tokens": usage.output_tokens if alone else made.sampled and len(made.sampled),
        "cached_tokens": usage.input_tokens_details.cached_tokens if alone else None,
        "prompt_token_ids": made.prompt and made.prompt.tolist(),
        "completion_token_ids": made.sampled and made.sampled.tolist(),
        "logprobs": made.logprobs,
        "extra": None if made.cut is None else {"cut": made.cut},
    }
    step["metrics"] = {name: value for name, value in metrics.items() if value is not None}
    return step


# --- Gym ---


def gym(head: TrajectoryHead, turns: Iterable[TakenTurn]) -> Iterator[bytes]:
    """A trajectory as a rollout of NeMo Gym."""
    rest = iter(turns)
    asked = list[Item]()
    first: TakenTurn | None = None
    for taken in rest:
        asked += [each for item in taken.input for each in _plain(item)]
        if taken.response.output:
            first = taken
            break
    whole: Item = {} if first is None else msgspec.json.decode(first.turn.response or b"{}")
    begun = {name: whole[name] for name in _ASKED if name in whole}
    yield _opened(responses_create_params={**begun, "input": asked}, harmonium=head.facts)
    last: Item = msgspec.json.decode(head.last)
    yield b',"response":' + _opened(**{name: value for name, value in last.items() if name != "output"})
    yield b',"output":['
    separator = b""
    for taken in () if first is None else _behind(first, rest):
        given = () if taken is first else taken.input
        for plain_item in (each for item in given for each in _plain(item)):
            yield separator + _encode(plain_item)
            separator = b","
        for made, items in generations_of(taken):
            plain = [each for item in items for each in _plain(item)]
            sampled = [place for place, each in enumerate(plain) if each["type"] != "function_call_output"]
            if sampled:
                plain[sampled[-1]] |= _ids_of(made)
            for item in plain:
                yield separator + _encode(item)
                separator = b","
    yield b"]}}"


def _behind(first: TakenTurn, rest: Iterable[TakenTurn]) -> Iterator[TakenTurn]:
    yield first
    yield from rest


def _ids_of(made: Generated) -> Item:
    """The members that an item has for training, as far as they are known."""
    return {
        "prompt_token_ids": made.prompt and made.prompt.tolist(),
        "generation_token_ids": made.sampled and made.sampled.tolist(),
        "generation_log_probs": made.logprobs,
        "cut": made.cut,
    }


def _plain(item: Item) -> Iterator[Item]:
    """An item as those that Gym knows, none for one without such a form; calls of any kind as calls of functions."""
    kind = item.get("type", "message")
    if kind == "message":
        yield {"type": "message", "status": "completed", **item}
    elif kind == "reasoning":
        yield {**item, "summary": item.get("summary") or []}
    elif is_call(item):
        called = _called(item)
        id, arguments = called["tool_call_id"], _encode(called["arguments"]).decode()
        yield {"type": "function_call", "call_id": id, "name": called["function_name"], "arguments": arguments}
        if text := text_in(item):
            yield {"type": "function_call_output", "call_id": id, "output": text}
    elif item.get("call_id"):
        yield {"type": "function_call_output", "call_id": item["call_id"], "output": text_in(item)}


def _opened(**members: Any) -> bytes:
    """An object that is still open."""
    return _encode(members).removesuffix(b"}")


FORMS = {"atif": atif, "gym": gym}
