"""The differences from vLLM's prompts: each is documented, shown by a request, and does what it says. Needs no vLLM."""

import pytest

from service.api.request import read_create
from service.responses.prompt.build import build_prompt
from service.responses.prompt.read import read_request
from service.steps import in_one_go
from tests.support.documents import block, read, rows, section
from tests.support.responses.requests import CONTEXT_TOKENS, DATE, ENVELOPES
from tests.support.responses.samples import harmony
from tests.support.vllm.corpus import CONTINUED, CORPUS
from tests.support.vllm.differences import DIFFERENCES, WRITTEN, spelled, written

DOCUMENT = "docs/harmony.md"
FUNCTION = "<|start|>developer<|message|># Tools\n\ntype f = (_: {\n"
CALLS = "<|start|>assistant to=functions.f<|message|>{}<|call|><|start|>assistant to=functions.g<|message|>{}<|call|>"
WRITINGS = {
    "call header": (
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
    ),
    "sampled header": (
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
    ),
    "output header": (
        "<|start|>functions.f<|channel|>commentary to=assistant<|message|>1<|end|>",
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>1<|end|>",
    ),
    "output order": (
        CALLS + "<|start|>functions.g<|message|>2<|end|><|start|>functions.f<|message|>1<|end|>",
        CALLS + "<|start|>functions.f<|message|>1<|end|><|start|>functions.g<|message|>2<|end|>",
    ),
    "empty instructions": (
        "<|start|>developer<|message|># Instructions\n\n\n\n# Tools\n\n## functions<|end|>",
        "<|start|>developer<|message|># Tools\n\n## functions<|end|>",
    ),
    "large numbers": (FUNCTION + "a?: any, // default: 1e+16<|end|>", FUNCTION + "a?: any, // default: 1e16<|end|>"),
}
"""A message as vLLM writes it, and as we do."""


def test_the_document_has_a_row_for_each_difference_and_no_other() -> None:
    shown = rows(section(read(DOCUMENT), "Differences from vLLM's own prompts"))
    assert [row[0] for row in shown] == [*DIFFERENCES]


def test_the_document_shows_a_real_prompt() -> None:
    request = read_create(block(DOCUMENT, "json request").encode(), store=True)
    sent = in_one_go(read_request(request, ENVELOPES))
    prompt = in_one_go(build_prompt(sent, request, [], CONTEXT_TOKENS, DATE))

    assert spelled(prompt.tokens).replace("<|start|>", "\n<|start|>").strip() == block(DOCUMENT, "harmony prompt")


def test_every_difference_is_shown_by_a_request_and_every_request_names_known_ones() -> None:
    shown = {name for case in (*CORPUS.values(), *CONTINUED.values()) for name in case.differences}

    assert shown == set(DIFFERENCES)


@pytest.mark.parametrize("name", WRITINGS)
def test_a_difference_makes_our_message_of_vllm_s(name: str) -> None:
    theirs, ours = WRITINGS[name]

    assert written(harmony(theirs), [name]) == harmony(ours)


def test_parts_that_were_encoded_one_by_one_become_one_text() -> None:
    start, end = harmony("<|start|>user<|message|>"), harmony("<|end|>")
    theirs = [*start, *harmony("one "), *harmony("two"), *end]

    assert theirs != [*start, *harmony("one two"), *end]
    assert written(theirs, ["joined parts"]) == [*start, *harmony("one two"), *end]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_difference_that_is_gone_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        written(harmony("<|start|>user<|message|>Hi<|end|><|start|>assistant"), [name])
