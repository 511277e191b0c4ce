"""Stories: a conversation of another product, as nodes with items of the Responses API, and as turns.

A node is what one side says at once. A turn is what was given since the model spoke last, and what it made of that. So
a node with several answers becomes several turns that begin alike, as forks do here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

Item = dict[str, Any]

MADE = ("reasoning", "function_call", "custom_tool_call")

NO_OUTPUT = "(no output was recorded)"


class StoryNode(NamedTuple):
    """Items of one side, given or made, behind another node."""

    id: str
    parent: str | None
    items: Sequence[Item]
    at: float = 0
    model: str = ""


class StoryTurn:
    """A turn on its way: what was given, and what the model made of it."""

    def __init__(self, node: StoryNode, parent: str | None, items: Sequence[Item]) -> None:
        self.id, self.parent, self.at, self.model = node.id, parent, node.at, node.model
        self.items, self.output = list(items), list[Item]()

    @property
    def calls(self) -> list[str]:
        return [item["call_id"] for item in self.output if item["type"].endswith("_call")]


def inner(value: Any, name: str) -> Any:
    """A member that may be missing, or null, in a value that may be."""
    found: Any = value or {}
    return found.get(name) or ()


def message_item(role: str, text: str) -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def reasoning_item(text: str) -> Item:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call_item(id: str, name: str, arguments: str) -> Item:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def outcome(id: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": id, "output": text}


def is_outcome(item: Item) -> bool:
    return str(item.get("type")).endswith("_output")


def is_made(item: Item) -> bool:
    """Whether a model makes such an item."""
    return item.get("type") in MADE or (item.get("type") == "message" and item.get("role") == "assistant")


def turns_of(nodes: Sequence[StoryNode], lost: Counter[str]) -> list[StoryTurn]:
    """The turns of a story, parents before their children; `lost` counts what they can't have."""
    continued = Counter(node.parent for node in nodes)
    turns, owner, waiting = dict[str, StoryTurn](), dict[str | None, str | None](), dict[str | None, list[Item]]()
    for node in _in_order(nodes, lost):
        parent = node.parent if node.parent in owner else None
        above, given = owner.get(parent), waiting.get(parent, [])
        if not node.items or not is_made(node.items[0]):
            owner[node.id], waiting[node.id] = above, [*given, *node.items]
            forks = above is None and continued[node.id] > 1  # a tree has one first turn
            if waiting[node.id] and (forks or not continued[node.id]):
                turns[node.id] = StoryTurn(node, above, waiting[node.id])
                owner[node.id], waiting[node.id] = node.id, []
        elif above is not None and not given and continued[parent] == 1:
            turns[above].output += node.items
            owner[node.id], waiting[node.id] = above, []
        else:
            turns[node.id] = turn = StoryTurn(node, above, given)
            turn.output += node.items
            owner[node.id], waiting[node.id] = node.id, []
    found = list(turns.values())
    _pair_calls(found, turns, lost)
    return found


def _in_order(nodes: Sequence[StoryNode], lost: Counter[str]) -> Iterator[StoryNode]:
    """Nodes, each behind its parent, and those without one as the first; a circle is counted, and left out."""
    known = {node.id for node in nodes}
    below = dict[str | None, list[StoryNode]]()
    for node in nodes:
        below.setdefault(node.parent if node.parent in known else None, []).append(node)
    left = below.pop(None, [])[::-1]
    while left:
        yield (node := left.pop())
        left += below.pop(node.id, [])[::-1]
    lost["messages that continue one another in a circle"] += sum(map(len, below.values()))


def _pair_calls(found: Sequence[StoryTurn], turns: dict[str, StoryTurn], lost: Counter[str]) -> None:
    """Have each call an output in what follows, and each output a call before."""
    parents = {turn.parent for turn in found}
    for turn in found:
        calls = turns[turn.parent].calls if turn.parent is not None else []
        given = [item.get("call_id") for item in turn.items if is_outcome(item)]
        orphans = [item for item in turn.items if is_outcome(item) and item["call_id"] not in calls]
        lost["outputs without a call"] += len(orphans)
        missing = [call for call in calls if call not in given]
        lost["calls without an output"] += len(missing)
        answers = [outcome(call, NO_OUTPUT) for call in missing]
        turn.items[:] = [*answers, *(item for item in turn.items if item not in orphans)]
    for turn in found:
        if turn.id not in parents and turn.calls:
            lost["calls without an output"] += len(turn.calls)
            turn.output[:] = [item for item in turn.output if not item["type"].endswith("_call")]
        for place, item in enumerate(turn.output):
            if item["type"] == "message":
                last = not any(later["type"] != "reasoning" for later in turn.output[place + 1 :])
                turn.output[place] = {**item, "phase": "final_answer" if last else "commentary"}


def in_a_row(parts: Iterable[tuple[Sequence[Item], float, str]]) -> Iterator[StoryNode]:
    """Nodes one behind the other, of their items, times and models."""
    before = None
    for place, (items, at, model) in enumerate(parts):
        if items:
            yield StoryNode(str(place), before, items, at, model)
            before = str(place)
