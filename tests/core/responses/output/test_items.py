"""The items of sampled messages: one of the right kind, and a sane one where the message is malformed, recipients
included.
"""

import pytest

from service.api import response as shapes
from service.harmony.tokens import END, encode
from service.responses.output.hosted import action_of
from service.responses.output.machine import Ending
from tests.support.responses import samples
from tests.support.responses.samples import ANSWER, as_json, harmony, run, sampled


def short(item: shapes.Item) -> tuple[str, ...]:
    """An item in a line: its kind, for a call its name, and its text."""
    match item:
        case shapes.FunctionCall():
            return "call", item.name, item.arguments
        case shapes.CustomToolCall():
            return "custom", item.name, item.input
        case shapes.McpCall():
            return "mcp", item.server_label, item.name, item.arguments
        case shapes.CodeInterpreterCall():
            return "python", item.code
        case shapes.WebSearchCall():
            return "web", *map(str, as_json(item)["action"].values())
        case shapes.Message() | shapes.Reasoning():
            kind = item.phase if isinstance(item, shapes.Message) else "reasoning"
            return kind, "".join(part.text for part in item.content)
        case _:
            raise AssertionError(item)


def items(text: str) -> list[tuple[str, ...]]:
    """The items, in short, that a generation becomes."""
    return [short(item) for item in sampled(text).output]


CALLED = [("call", "lookup", "{}")]
THINKING, CALLING = "<|channel|>analysis<|message|>Hm.", "<|channel|>commentary to=functions.lookup"
BOTH = [("reasoning", "Hm."), ("final_answer", "42")]
MALFORMED = {
    "the start between messages is missing": (f"{THINKING}<|end|>{ANSWER}", BOTH),
    "the role between messages is missing": (f"{THINKING}<|end|><|start|>{ANSWER}", BOTH),
    "the end between messages is missing": (f"{THINKING}<|start|>assistant{ANSWER}", BOTH),
    "end and start between messages are missing": (f"{THINKING}{ANSWER}", BOTH),
    "an end is doubled": (f"{THINKING}<|end|><|end|><|start|>assistant{ANSWER}", BOTH),
    "the whole opening is doubled": (f"<|start|>assistant{ANSWER}", [("final_answer", "42")]),
    "the type as the recipient": ("<|channel|>commentary to=<|constrain|>json<|message|>a", [("commentary", "a")]),
    "the recipient in the channel's place": ("<|channel|>functions.lookup<|message|>{}<|call|>", CALLED),
    "a declared name in the channel's place": ("<|channel|>lookup <|constrain|>json<|message|>{}<|call|>", CALLED),
    "the recipient in the role": (
        f"{THINKING}<|end|><|start|>functions.lookup<|message|>{{}}<|call|>",
        [BOTH[0], *CALLED],
    ),
    "the recipient in the role, misspelt": (
        f"{THINKING}<|end|><|start|>functions/lookup<|message|>{{}}<|call|>",
        [BOTH[0], *CALLED],
    ),
    "the message mark behind a misspelt recipient is missing": (
        "<|channel|>commentary to=functions/lookup <|constrain|>json{}<|call|>",
        CALLED,
    ),
    "the recipient without its to=": ("<|channel|>commentary functions.lookup<|message|>{}<|call|>", CALLED),
    "a call without a channel": (" to=functions.lookup<|message|>{}<|call|>", CALLED),
    "the channel is doubled": (f" to=functions.lookup{'<|channel|>commentary' * 2}<|message|>{{}}<|call|>", CALLED),
    "a call is ended by end": (f"{CALLING}<|message|>{{}}<|end|>", CALLED),
    "the call's message mark is missing": (f"{CALLING} <|constrain|>json{{}}<|call|>", CALLED),
    "a call without arguments": (f"{CALLING}<|call|>", [("call", "lookup", "")]),
    "arguments that are not JSON": (f"{CALLING}<|message|>{{a: b<|call|>", [("call", "lookup", "{a: b")]),
    "an unknown channel": ("<|channel|>comment<|message|>Hi<|end|>", [("commentary", "Hi")]),
    "no channel at all": ("<|message|>Hi<|return|>", [("final_answer", "Hi")]),
    "text alone": ("Hi there", [("final_answer", "Hi there")]),
    "text after the end": (f"{ANSWER}More", [("final_answer", "42"), ("final_answer", "More")]),
    "the final's message mark is missing": ('<|channel|>final{"a":1}<|return|>', [("final_answer", '{"a":1}')]),
    "the analysis' message mark is missing": ("<|channel|>analysis The user<|end|>", [("reasoning", " The user")]),
    "the analysis' channel mark is missing": ("analysis<|message|>Secret<|end|>", [("reasoning", "Secret")]),
    "the channel is glued to the role": (f"{THINKING}<|start|>assistantfinal<|message|>42<|return|>", BOTH),
    "marks inside the text": ("<|channel|>final<|message|>4<|constrain|>2<|return|>", [("final_answer", "42")]),
    "marks alone": ("<|end|><|start|>assistant<|end|>", []),
}


@pytest.mark.parametrize(("text", "expected"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_output_becomes_sane_items(text: str, expected: list[tuple[str, ...]]) -> None:
    assert items(text) == expected


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
    "functions.lookupjson": ("call", "lookup", "{}"),
    "functions/lookup": ("call", "lookup", "{}"),
    "functions:lookup": ("call", "lookup", "{}"),
    "functions::lookup": ("call", "lookup", "{}"),
    "functions/functions.lookup": ("call", "lookup", "{}"),
    "function.lookup": ("call", "lookup", "{}"),
    "tools/lookup": ("call", "lookup", "{}"),
    "functions/lookupjson": ("call", "lookup", "{}"),
    "functions/patch": ("custom", "patch", "{}"),
    "crm/find": ("call", "find", "{}"),
    "functions/other": ("mcp", "functions", "other", "{}"),
    "crm.find": ("call", "find", "{}"),
    "find": ("call", "find", "{}"),
    "functions.patch": ("custom", "patch", "{}"),
    "functions.other": ("mcp", "functions", "other", "{}"),
    "crm.other": ("mcp", "crm", "other", "{}"),
    "other": ("mcp", "other", "other", "{}"),
    "mcp.docs.search": ("mcp", "docs", "search", "{}"),
    "docs.look.up": ("mcp", "docs", "look.up", "{}"),
    "mcp.docs": ("mcp", "docs", "docs", "{}"),
    "container.exec": ("mcp", "container", "exec", "{}"),
    "python": ("python", "{}"),
    "browser.search": ("web", "search", "{}"),
    "browser.open": ("web", "open_page", ""),
    "browser.find": ("web", "find_in_page", "", ""),
    "browser": ("web", "search", "{}"),
    "mcp.": ("mcp", "mcp.", "mcp.", "{}"),
}


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final", "other"])
def test_a_recipient_decides_on_any_channel(channel: str) -> None:
    became = {name: items(f"<|channel|>{channel} to={name}<|message|>{{}}<|call|>") for name in RECIPIENTS}

    assert became == {name: [expected] for name, expected in RECIPIENTS.items()}


@pytest.mark.parametrize("channel", ["analysis", "commentary", "final"])
def test_a_recipient_that_nobody_can_be_is_none(channel: str) -> None:
    expected = {"analysis": "reasoning", "final": "final_answer"}.get(channel, channel)

    for name in ("assistant", "user", "all", "some<thing", "x" * 129):
        for text in (
            f"<|channel|>{channel} to={name}<|message|>Hi<|end|>",
            f" to={name}<|channel|>{channel}<|message|>Hi<|end|>",
        ):
            assert items(text) == [(expected, "Hi")]
            (message,) = sampled(text).messages
            assert (message.recipient, message.channel) == (None, channel)


def test_a_call_by_a_misspelt_recipient_is_kept_as_it_should_be_spelt() -> None:
    for text in ("<|channel|>commentary to=functions/lookup", "<|channel|>functions/lookup"):
        (message,) = sampled(f"{text}<|message|>{{}}<|call|>").messages
        assert message.recipient == "functions.lookup"


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


BROWSED = {
    ("search", '{"query": "cats", "topn": 5}'): ("search", "cats"),
    ("search", "[1"): ("search", "[1"),
    ("search", "[" * 5000): ("search", "[" * 5000),
    ("search", '{"query": "\\ud800"}'): ("search", '{"query": "\\ud800"}'),
    ("open", '{"id": "https://example.com", "cursor": 1}'): ("open_page", "https://example.com"),
    ("open", '{"cursor": 2, "loc": 30}'): ("open_page", "cursor:2"),
    ("open", "nonsense"): ("search", "nonsense"),
    ("find", '{"pattern": "fur", "cursor": 1}'): ("find_in_page", "cursor:1", "fur"),
    ("screenshot", '{"query": "cats"}'): ("search", "cats"),
}


@pytest.mark.parametrize(("asked", "expected"), BROWSED.items(), ids=lambda value: "-".join(value)[:40])
def test_what_is_asked_of_a_browser_is_an_action(asked: tuple[str, str], expected: tuple[str, ...]) -> None:
    tool, arguments = asked

    assert tuple(action_of(tool, arguments).values()) == expected
