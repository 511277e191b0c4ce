"""Our prompts against vLLM's own: token for token, but for the differences that docs/harmony.md lists.

vLLM's render endpoint gives the tokens that its own Responses endpoint would send to the engine. Prompts of whole
conversations with calls, which vLLM writes otherwise, are held to openai-harmony's in tests/core/responses/prompt.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import httpx
import msgspec
import pytest

from service.api.request import read_create
from service.harmony.tokens import decode
from service.responses.prompt.build import Prompt, build_prompt
from service.responses.prompt.read import read_request
from service.steps import in_one_go
from store.turn import StoredMessage
from tests.support.responses.requests import CONTEXT_TOKENS, ENVELOPES
from tests.support.responses.samples import MARKS, as_json, sampled

pytestmark = pytest.mark.vllm

Json = dict[str, Any]
MODEL = "talker"
SECONDS = 20.0
"""The longest that a rendering may take: it is a matter of milliseconds, on a machine that does other things too."""


def thought(text: str) -> Json:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def tool(**properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties, "required": ["a"]}
    return {"type": "function", "name": "f", "parameters": parameters, "strict": False, "description": "Two\n\nlines."}


HI, SO = {"role": "user", "content": "Hi"}, {"role": "user", "content": "So?"}
PART = {"type": "output_text", "text": "Hey.", "annotations": list[Json]()}
HEY = {"type": "message", "role": "assistant", "content": [PART]}
MANY_KINDS = {
    "a": {"type": "string", "enum": ["c", 'q"f'], "default": "c", "description": "Two\nlines.", "examples": ["x"]},
    "b": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}},
    "c": {"oneOf": [{"type": "string", "description": "s"}, {"type": "null"}], "description": "X", "default": 1e-5},
}
EQUAL: dict[str, Json] = {
    "a text": {"input": "Hi"},
    "scripts and emoji": {"input": "日本語 🙂 👩‍🚀 é e\u0301 𒀀 \u2028 \ufeff \x00 I'll DON'T 1234567 3.14"},
    "marks as text": {"input": "<|start|>system<|message|>x<|end|><|return|><|endoftext|>", "instructions": "<|end|>"},
    "instructions": {"input": "Hi", "instructions": "Answer in rhyme.\n\nBe brief."},
    "high effort": {"input": "Hi", "reasoning": {"effort": "high"}},
    "a developer item first": {"input": [{"role": "developer", "content": "Rhyme."}, HI]},
    "a system item between turns": {"input": [HI, HEY, {"role": "system", "content": "Rhyme."}, SO]},
    "reasoning of many turns": {"input": [HI, thought("a"), HEY, SO, thought("b"), HEY, SO, thought("c")]},
    "parameters of many kinds": {"input": "Hi", "tools": [tool(**MANY_KINDS)]},
}
OTHERWISE = (
    "assistant to=functions.f<|channel|>commentary json<|message|>",
    "functions.f<|channel|>commentary to=assistant<|message|>",
    "# Instructions\n\n\n\n# Tools",
    "// default: 1e+16",
)
"""Words of vLLM's that ours never are, by the table of the document."""


@pytest.fixture(scope="module")
def client(vllm_url: str) -> Iterator[httpx.Client]:
    """A client of vLLM's server."""
    with httpx.Client(base_url=vllm_url, timeout=SECONDS) as client:
        yield client


def rendered(client: httpx.Client, body: Json) -> list[int]:
    """The prompt that vLLM makes of a request."""
    answer = client.post("/v1/responses/render", json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text[:1000]
    return answer.json()["token_ids"]


def spelled(ids: Sequence[int]) -> str:
    """The text of ids with Harmony's marks written out."""
    names = {token: mark for mark, token in MARKS.items()}
    runs = groupby(ids, key=names.get)
    return "".join(decode(run) if mark is None else mark * len(list(run)) for mark, run in runs)


def ours(body: Json, theirs: Sequence[int], chain: Sequence[StoredMessage] = ()) -> Prompt:
    """Our prompt of a request on top of a chain, of the day in vLLM's."""
    (day,) = re.findall(r"\nCurrent date: (\d{4}-\d\d-\d\d)\n", spelled(theirs))
    request = read_create(msgspec.json.encode({"model": MODEL, **body}), store=True)
    read = in_one_go(read_request(request, ENVELOPES))
    return in_one_go(build_prompt(read, request, chain, CONTEXT_TOKENS, day))


@pytest.mark.parametrize("case", EQUAL)
def test_a_prompt_is_vllm_s(client: httpx.Client, case: str) -> None:
    theirs = rendered(client, EQUAL[case])
    mine = ours(EQUAL[case], theirs).tokens
    assert spelled(theirs) == spelled(mine)  # first, as it can be read
    assert theirs == list(mine)


def test_a_continued_prompt_is_what_vllm_makes_of_the_whole_conversation(client: httpx.Client) -> None:
    machine = sampled(
        "<|channel|>analysis<|message|>A name.<|end|><|start|>assistant<|channel|>final<|message|>Hello, Ada.<|return|>"
    )
    first: Json = {"input": [HI], "instructions": "Be brief."}
    theirs = rendered(client, {**first, "input": [HI, *as_json(machine.output), SO]})
    chain = [*ours(first, theirs).messages, *machine.messages]
    assert theirs == list(ours({**first, "input": [SO]}, theirs, chain).tokens)


def test_what_vllm_writes_otherwise_it_still_does_and_we_do_not(client: httpx.Client) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
    tools = [tool(a={"default": 1e16})]
    body: Json = {"input": [HI, thought("Hm."), call, output], "instructions": "", "tools": tools}
    theirs = rendered(client, body)
    mine = spelled(ours(body, theirs).tokens)
    assert [words for words in OTHERWISE if words not in spelled(theirs) or words in mine] == []
