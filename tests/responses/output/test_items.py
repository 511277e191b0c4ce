"""The items of sampled messages: one of the right kind, and a sane one where the message is malformed, recipients
included.
"""

import msgspec
import pytest

from service.api.response import Reasoning
from service.harmony.header import Header
from service.harmony.tokens import END, encode
from service.responses.output.hosted import action_of
from service.responses.output.machine import Ending
from service.responses.output.open_message import Making, emitter_for
from service.responses.output.rules import Rules
from service.responses.output.sealed import TooLong, read_reasoning
from tests.support.responses import samples
from tests.support.responses.samples import ANSWER, RESPONSE_ID, RULES, as_json, harmony, run, sampled
from tests.support.responses.shown import short


def items(text: str) -> list[tuple[str, ...]]:
    """The items, in short, that a generation becomes."""
    return [short(item) for item in sampled(text).output]


CALLED = [("call", "lookup", "{}")]
MALFORMED = {
    "the start between messages is missing": (
        f"<|channel|>analysis<|message|>Hm.<|end|>{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "the role between messages is missing": (
        f"<|channel|>analysis<|message|>Hm.<|end|><|start|>{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "the end between messages is missing": (
        f"<|channel|>analysis<|message|>Hm.<|start|>assistant{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "end and start between messages are missing": (
        f"<|channel|>analysis<|message|>Hm.{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "an end is doubled": (
        f"<|channel|>analysis<|message|>Hm.<|end|><|end|><|start|>assistant{ANSWER}",
        [("reasoning", "Hm."), ("final_answer", "42")],
    ),
    "the role is doubled": (f"assistant{ANSWER}", [("final_answer", "42")]),
    "the whole opening is doubled": (f"<|start|>assistant{ANSWER}", [("final_answer", "42")]),
    "a type and no recipient": (
        '<|channel|>commentary<|constrain|>json<|message|>{"a":1}<|end|>',
        [("commentary", '{"a":1}')],
    ),
    "the type as the recipient": (
        "<|channel|>commentary to=<|constrain|>json<|message|>{}<|call|>",
        [("commentary", "{}")],
    ),
    "the recipient in the channel's place": ("<|channel|>functions.lookup<|message|>{}<|call|>", CALLED),
    "the recipient with its to= in the channel's place": (
        "<|channel|>to=functions.lookup<|message|>{}<|call|>",
        CALLED,
    ),
    "a declared name in the channel's place": ("<|channel|>lookup <|constrain|>json<|message|>{}<|call|>", CALLED),
    "the recipient in the role": (
        f"{ANSWER}<|start|>functions.lookup<|message|>{{}}<|call|>",
        [("final_answer", "42"), *CALLED],
    ),
    "the recipient without its to=": ("<|channel|>commentary functions.lookup<|message|>{}<|call|>", CALLED),
    "a call on the analysis channel": ("<|channel|>analysis to=functions.lookup code<|message|>{}<|call|>", CALLED),
    "a call without a channel": (" to=functions.lookup<|message|>{}<|call|>", CALLED),
    "functions. is missing": ("<|channel|>commentary to=lookup<|message|>{}<|call|>", CALLED),
    "functions. is doubled": ("<|channel|>commentary to=functions.functions.lookup<|message|>{}<|call|>", CALLED),
    "the type is glued to the name": ("<|channel|>commentary to=functions.lookupjson<|message|>{}<|call|>", CALLED),
    "the channel is glued to the name": (
        " to=functions.lookup<|channel|>commentary<|channel|>commentary<|message|>{}<|call|>",
        CALLED,
    ),
    "a call is ended by end": ("<|channel|>commentary to=functions.lookup<|message|>{}<|end|>", CALLED),
    "a call is ended by return": ("<|channel|>commentary to=functions.lookup<|message|>{}<|return|>", CALLED),
    "the call's message mark is missing": ("<|channel|>commentary to=functions.lookup{}<|call|>", CALLED),
    "the call's message mark is missing after its type": (
        "<|channel|>commentary to=functions.lookup <|constrain|>json{}<|call|>",
        CALLED,
    ),
    "a call without arguments": ("<|channel|>commentary to=functions.lookup<|call|>", [("call", "lookup", "")]),
    "arguments that are not JSON": (
        "<|channel|>commentary to=functions.lookup<|message|>{city: Oslo<|call|>",
        [("call", "lookup", "{city: Oslo")],
    ),
    "an unknown channel": ("<|channel|>comment<|message|>Hi<|end|>", [("commentary", "Hi")]),
    "no channel at all": ("<|message|>Hi<|return|>", [("final_answer", "Hi")]),
    "an empty final": ("<|channel|>final<|message|><|return|>", [("final_answer", "")]),
    "text before any header": (
        f"Hi there<|end|><|start|>assistant{ANSWER}",
        [("final_answer", "Hi there"), ("final_answer", "42")],
    ),
    "text alone": ("Hi there", [("final_answer", "Hi there")]),
    "text after the end": (f"{ANSWER}More", [("final_answer", "42"), ("final_answer", "More")]),
    "the final's message mark is missing": ('<|channel|>final{"a":1}<|return|>', [("final_answer", '{"a":1}')]),
    "the analysis' message mark is missing": ("<|channel|>analysis The user<|end|>", [("reasoning", " The user")]),
    "the analysis' channel mark is missing": ("analysis<|message|>Secret<|end|>", [("reasoning", "Secret")]),
    "the channel is glued to the role": (
        f"{ANSWER}<|start|>assistantanalysis<|message|>Secret<|end|>",
        [("final_answer", "42"), ("reasoning", "Secret")],
    ),
    "analysis alone": ("<|channel|>analysis<|message|>Hm.<|return|>", [("reasoning", "Hm.")]),
    "marks inside the text": ("<|channel|>final<|message|>4<|constrain|>2<|return|>", [("final_answer", "42")]),
    "marks alone": ("<|end|><|start|>assistant<|end|>", []),
}


@pytest.mark.parametrize(("text", "expected"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_output_becomes_sane_items(text: str, expected: list[tuple[str, ...]]) -> None:
    assert items(text) == expected


# --- what a request asks for besides ---


def test_malformed_reasoning_is_sealed_as_text() -> None:
    item = sampled("analysis<|message|>Hm<|end|>", rules=msgspec.structs.replace(RULES, sealed=True)).output[0]
    assert isinstance(item, Reasoning)

    assert read_reasoning(bytes.fromhex(str(item.encrypted_content).partition(":")[2])) == "Hm"


def test_a_thought_too_long_to_be_sealed_goes_as_its_text_alone() -> None:
    def full(kind: str, payload: bytes) -> str:
        raise TooLong

    making = Making(RESPONSE_ID, Rules(sealed=True), full)
    emitter = emitter_for(making, Header("assistant", "analysis", None, None, None, "", True), None, 0)
    emitter.text("Hm.")
    item = as_json(emitter.close("completed")[0])

    assert (item["status"], item["content"][0]["text"]) == ("completed", "Hm.")
    assert "encrypted_content" not in item


def test_a_custom_tool_without_wrapping_gets_what_was_sampled() -> None:
    (item,) = sampled('<|channel|>commentary to=functions.patch<|message|>{"input": "a"}<|call|>').output

    assert short(item) == ("custom", "patch", '{"input": "a"}')


def test_an_id_that_does_not_exist_loses_no_text() -> None:
    machine = samples.machine()
    run(machine, [[*harmony("<|channel|>final<|message|>4"), 201088, *encode("2"), END]])

    assert [short(item) for item in machine.output] == [("final_answer", "42")]


RECIPIENTS = {
    "functions.lookup": ("call", "lookup", "{}"),
    "lookup": ("call", "lookup", "{}"),
    "functions.functions.lookup": ("call", "lookup", "{}"),
    "functions.lookupjson": ("call", "lookup", "{}"),
    "crm.find": ("call", "find", "{}"),
    "find": ("call", "find", "{}"),
    "functions.patch": ("custom", "patch", "{}"),
    "functions.note": ("custom", "note", "{}"),
    "functions.other": ("mcp", "functions", "other", "{}"),
    "functions.functions.other": ("mcp", "functions", "other", "{}"),
    "crm.other": ("mcp", "crm", "other", "{}"),
    "other": ("mcp", "other", "other", "{}"),
    "mcp.docs.search": ("mcp", "docs", "search", "{}"),
    "docs.search": ("mcp", "docs", "search", "{}"),
    "docs.look.up": ("mcp", "docs", "look.up", "{}"),
    "mcp.docs": ("mcp", "docs", "docs", "{}"),
    "container.exec": ("mcp", "container", "exec", "{}"),
    "python": ("python", "{}"),
    "pythonjson": ("python", "{}"),
    "browser.search": ("web", "search", "{}"),
    "browser.searchjson": ("web", "search", "{}"),
    "browser.open": ("web", "open_page", ""),
    "browser.find": ("web", "find_in_page", "", ""),
    "browser": ("web", "search", "{}"),
    "mcp.": ("mcp", "mcp.", "mcp.", "{}"),
    "functions.": ("mcp", "functions", "functions", "{}"),
    ".": ("mcp", ".", ".", "{}"),
}


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final", "other"])
def test_a_recipient_decides_on_any_channel(channel: str) -> None:
    became = {name: items(f"<|channel|>{channel} to={name}<|message|>{{}}<|call|>") for name in RECIPIENTS}

    assert became == {name: [expected] for name, expected in RECIPIENTS.items()}


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final"])
def test_a_recipient_that_nobody_can_be_is_none(channel: str) -> None:
    expected = {"analysis": "reasoning", "final": "final_answer"}.get(channel, channel)

    for name in ("assistant", "some<thing", "x" * 129):
        assert items(f"<|channel|>{channel} to={name}<|message|>Hi<|end|>") == [(expected, "Hi")]


@pytest.mark.parametrize(("recipient", "name"), [("find", "find"), ("crm.find", "find")])
def test_a_call_in_a_namespace_says_so(recipient: str, name: str) -> None:
    (call,) = sampled(f"<|channel|>commentary to={recipient}<|message|>{{}}<|call|>").output

    assert as_json(call) | {"name": name, "namespace": "crm"} == as_json(call)


@pytest.mark.parametrize("recipient", ["python", "browser.search", "docs.search", "functions.other"])
@pytest.mark.parametrize(("ending", "status"), [(Ending.STOP, "failed"), (Ending.LENGTH, "incomplete")])
def test_a_call_that_nobody_runs_failed_unless_it_was_cut_short(recipient: str, ending: Ending, status: str) -> None:
    mark = "<|call|>" if ending is Ending.STOP else ""
    (call,) = sampled(f"<|channel|>commentary to={recipient}<|message|>{{}}{mark}", ending).output

    assert as_json(call)["status"] == status


def test_a_failed_call_of_another_s_tool_says_why() -> None:
    (call,) = sampled("<|channel|>commentary to=docs.search<|message|>{}<|call|>").output

    assert as_json(call)["error"] == {"type": "mcp_protocol_error", "code": -32601, "message": "There is no such tool."}


BROWSED = {
    ("search", '{"query": "cats", "topn": 5}'): ("search", "cats"),
    ("search", "cats"): ("search", "cats"),
    ("search", "[1"): ("search", "[1"),
    ("search", '{"query": 5}'): ("search", '{"query": 5}'),
    ("search", "[" * 5000): ("search", "[" * 5000),
    ("search", '{"query": "\\ud800"}'): ("search", '{"query": "\\ud800"}'),
    ("open", '{"id": "https://example.com", "cursor": 1}'): ("open_page", "https://example.com"),
    ("open", '{"id": 7, "cursor": 1}'): ("open_page", "cursor:1,id:7"),
    ("open", '{"cursor": 2, "loc": 30}'): ("open_page", "cursor:2"),
    ("open", "nonsense"): ("search", "nonsense"),
    ("find", '{"pattern": "fur", "cursor": 1}'): ("find_in_page", "cursor:1", "fur"),
    ("find", '{"pattern": null}'): ("find_in_page", "", ""),
    ("screenshot", '{"query": "cats"}'): ("search", "cats"),
}


@pytest.mark.parametrize(("asked", "expected"), BROWSED.items(), ids=lambda value: "-".join(value)[:40])
def test_what_is_asked_of_a_browser_is_an_action(asked: tuple[str, str], expected: tuple[str, ...]) -> None:
    tool, arguments = asked

    assert tuple(action_of(tool, arguments).values()) == expected
