"""Every known difference between our prompts and vLLM's own, as the change that makes one of the other.

A difference is in how the request is read or in how a prompt is written: the first turns the request into the one that
vLLM takes it for, the second turns vLLM's prompt into ours. Each does one thing and nothing else, so that whatever
is left over fails a test. docs/harmony.md has a row for each, with the reason.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from service.harmony.tokens import MESSAGE, START, decode, encode
from tests.support.responses.samples import MARKS, harmony
from tests.support.vllm.items import Json

Ids = list[int]
Read = Callable[[Json], Json]
Write = Callable[[Ids], Ids]

_NAMES = {token: mark for mark, token in MARKS.items()}
_INSTRUCTING = ("developer", "system")


# --- how a request is read ---


def without_phases(body: Json) -> Json:
    """vLLM knows no phase: each assistant message is a final answer."""
    return _with_items(body, lambda item: [{name: value for name, value in item.items() if name != "phase"}])


def without_empty_instructions(body: Json) -> Json:
    """vLLM passes over a developer or system item that says nothing."""
    return _with_items(body, lambda item: [] if _role(item) in _INSTRUCTING and not item["content"] else [item])


def leading_as_instructions(body: Json) -> Json:
    """vLLM takes a developer or system item that comes first for the request's instructions, unless it has some."""
    first, *others = body["input"]
    if _role(first) not in _INSTRUCTING or body.get("instructions") is not None:
        return body
    return {**body, "input": others, "instructions": first["content"]}


def without_refusals(body: Json) -> Json:
    """vLLM shows an empty answer where an assistant refused."""

    def silent(item: Json) -> Json:
        if _role(item) != "assistant" or isinstance(item["content"], str):
            return item
        return {**item, "content": [part | {"refusal": ""} if "refusal" in part else part for part in item["content"]]}

    return _with_items(body, lambda item: [silent(item)])


def _role(item: Json) -> str | None:
    return item.get("role")


def _with_items(body: Json, change: Callable[[Json], list[Json]]) -> Json:
    return {**body, "input": [changed for item in body["input"] for changed in change(item)]}


# --- how a prompt is written ---


def messages(prompt: Sequence[int]) -> Iterator[Ids]:
    """The messages of a prompt, each from its START to the next; the last is what the model goes on with."""
    starts = [place for place, token in enumerate(prompt) if token == START]
    assert starts[:1] == [0]
    for start, end in zip(starts, [*starts[1:], len(prompt)], strict=True):
        yield list(prompt[start:end])


def spelled(ids: Sequence[int]) -> str:
    """The text of ids with Harmony's marks written out: for headers, which hold no such text, and for people."""
    runs = groupby(ids, key=_NAMES.get)
    return "".join(decode(run) if mark is None else mark * len(list(run)) for mark, run in runs)


def in_headers(pattern: str, replacement: str, prompt: Ids) -> Ids:
    """The prompt with each header that matches written anew."""
    changed: Ids = []
    for message in messages(prompt):
        end = message.index(MESSAGE) + 1 if MESSAGE in message else len(message)
        header, matches = re.subn(pattern, replacement, spelled(message[:end]))
        changed += (harmony(header) if matches else message[:end]) + message[end:]
    return changed


def in_contents(pattern: str, replacement: str, prompt: Ids) -> Ids:
    """The prompt with each content that matches encoded anew."""
    changed: Ids = []
    for message in messages(prompt):
        start, end = (message.index(MESSAGE) + 1, -1) if MESSAGE in message else (len(message), len(message))
        content, matches = re.subn(pattern, replacement, decode(message[start:end]))
        changed += message[:start] + (encode(content) if matches else message[start:end]) + message[end:]
    return changed


def in_call_order(prompt: Ids) -> Ids:
    """The prompt with the outputs that stand side by side in the order of their calls."""
    headers = [spelled(message).partition("<|message|>")[0] for message in messages(prompt)]
    called = [callee for header in headers for callee in re.findall(r"^<\|start\|>assistant.* to=([^\s<]+)", header)]

    def answered(message: Ids) -> int:
        """The place of the call whose output this is; -1 for all else."""
        author = re.split(r"[\s<]", spelled(message[1:]))[0]
        return called.index(author) if author in called else -1

    side_by_side = groupby(messages(prompt), key=lambda message: answered(message) < 0)
    return [token for _, run in side_by_side for message in sorted(run, key=answered) for token in message]


# --- the table ---

CALL = r"assistant to=(\S+)<\|channel\|>commentary json"

READ: dict[str, Read] = {
    "phase": without_phases,
    "leading instruction": leading_as_instructions,
    "empty instruction": without_empty_instructions,
    "refusal": without_refusals,
}

WRITTEN: dict[str, Write] = {
    "call header": partial(in_headers, CALL, r"assistant to=\1<|channel|>commentary <|constrain|>json"),
    "sampled header": partial(in_headers, CALL, r"assistant<|channel|>commentary to=\1 <|constrain|>json"),
    "output header": partial(
        in_headers, r"(\S+)<\|channel\|>commentary to=assistant", r"\1 to=assistant<|channel|>commentary"
    ),
    "output order": in_call_order,
    "empty instructions": partial(in_contents, r"\A# Instructions\n\n\n\n(?=# Tools)", ""),
    "large numbers": partial(in_contents, r"(?<=// default: )(-?[\d.]+)e\+(\d+)", r"\1e\2"),
    "joined parts": partial(in_contents, r"\A", ""),
}

DIFFERENCES = (*READ, *WRITTEN)


def read(body: Json, differences: Sequence[str]) -> Json:
    """The request as vLLM reads it."""
    for name in differences:
        body = READ[name](body) if name in READ else body
    return body


def written(prompt: Ids, differences: Sequence[str]) -> Ids:
    """vLLM's prompt as we write it. Fails where a difference isn't there."""
    for name in differences:
        if name in WRITTEN:
            changed = WRITTEN[name](prompt)
            assert changed != prompt, f"'{name}' no longer shows in vLLM's prompt: take it from this case"
            prompt = changed
    return prompt
