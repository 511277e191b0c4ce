"""What parsers of markups make of turns that models write otherwise than their templates, form by form.

What holds for every markup is in its conformance suite.
"""

import json
import time

import pytest

from service.features.models.markup.calls import types_of
from service.features.models.markup.families import MARKUPS
from service.features.models.markup.stream import StreamParser
from service.harmony.tokens import CALL, END, RETURN
from tests.support.markup.streams import SPECIAL, Message, messages_of, parser, read, segments_of, tokens_of
from tests.support.markup.writing import WRITING, Turn, minimax_m3, written


def final(text: str, stop: int | None = RETURN) -> Message:
    return Message("final", text, stop)


def analysis(text: str, stop: int | None = END) -> Message:
    return Message("analysis", text, stop)


def call(text: str, stop: int | None = CALL, name: str = "f") -> Message:
    return Message(f"functions.{name}", text, stop)


REASONING: dict[str, tuple[str, str, list[Message]]] = {
    "opened by the prompt": ("think", "Hm.\n</think>\n\nYes.<|im_end|>", [analysis("Hm."), final("Yes.")]),
    "cut short": ("think", "Hm. </thi", [analysis("Hm. </thi", None)]),
    "ended by the turn": ("think", "Hm.<|im_end|>", [analysis("Hm.", RETURN), final("")]),
    "ended by a call": (
        "qwen",
        'Hm.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>',
        [analysis("Hm."), call("{}")],
    ),
    "with a mark that leads to no call": (
        "qwen",
        "I write <tool_call> now.</think>A<|im_end|>",
        [analysis("I write <tool_call> now."), final("A")],
    ),
}
TURNS: dict[str, tuple[str, str, list[Message]]] = {
    "empty reasoning is no segment": ("think", "<think>\n\n</think>\n\nYes.<|im_end|>", [final("Yes.")]),
    "thinking twice is two segments": (
        "think",
        "<think>One.</think>\n\nA.\n<think>Two.</think>\n\nB.<|im_end|>",
        [analysis("One."), final("A.", END), analysis("Two."), final("B.")],
    ),
    "arguments in a string are what it says": (
        "hermes",
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call><|im_end|>',
        [call('{"a": 1}')],
    ),
    **{
        f"no call is text: {text}": (
            "hermes",
            f"<tool_call>{text}</tool_call><|im_end|>",
            [final(f"<tool_call>{text}</tool_call>")],
        )
        for text in ('{"name": "f", "args": {}}', '{"name": "a b"}', "f()", "")
    },
    "a call follows one that was none": (
        "hermes",
        'A\n<tool_call>\nf()\n<tool_call>{"name": "f"}</tool_call><|im_end|>',
        [final("A\n<tool_call>\nf()", END), call("{}")],
    ),
    "arguments that are no JSON leave a call unfinished": (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {a: 1}}</tool_call>B<|im_end|>',
        [call("{a: 1}", None), final("B")],
    ),
    "a call that lost its last brace is whole": (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call><|im_end|>',
        [call('{"a": 1}')],
    ),
    "a parameter that nobody closed ends with the next one": (
        "qwen-coder",
        "<function=get_weather>\n<parameter=city>\nParis\n<parameter=days>\nsoon\n</function>\n",
        [call('{"city": "Paris", "days": "soon"}', name="get_weather")],
    ),
    "a function that nobody closed ends with the next one": (
        "qwen-coder",
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<function=g>\n</function>\n</tool_call>",
        [call('{"a": "1"}'), call("{}", name="g")],
    ),
    "Gemma's arguments may stand in round brackets": (
        "gemma-4",
        '<|tool_call>call:f(a:<|"|>(b)<|"|>)<tool_call|><|im_end|>',
        [call('{"a": "(b)"}')],
    ),
    "a section may end within a call": (
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
        "<|tool_calls_section_end|>B<|im_end|>",
        [call("{}"), final("B")],
    ),
    "literals are those of Python": (
        "llama-4",
        "[f(a='it\\'s \\u00f6\\n', b=[1, -2.5, {'k': (True, None,)},], c=\"x\", ), g()]<|im_end|>",
        [call('{"a": "it\'s \u00f6\\n", "b": [1, -2.5, {"k": [true, null]}], "c": "x"}'), call("{}", name="g")],
    ),
    "a list behind nothing but marks is calls": (
        "llama-4",
        "<|python_start|>[f(a=1)]<|python_end|><|im_end|>",
        [call('{"a": 1}')],
    ),
    **{
        f"a bracket that begins no call is text: {text}": ("llama-4", f"{text}<|im_end|>", [final(text)])
        for text in ("[1] says so", "[f(x)]", "[link](there)", "See [f(a=1)].", "[f", "[]")
    },
    "a word that Python has not leaves a call unfinished": (
        "llama-4",
        "[f(a=1, b=other)]<|im_end|>",
        [call("a=1, b=other)", None)],
    ),
    "half of a pair of surrogates is no character": (
        "llama-4",
        "[f(a='\\ud800\\x41')]<|im_end|>",
        [call('{"a": "\ufffdA"}')],
    ),
    "literals are those of Gemma": (
        "gemma-4",
        '<|tool_call>call:get_weather{city:5,days:3,near:[<|"|>}a"<|"|>],x:{y:true}}<tool_call|><|im_end|>',
        [call('{"city": "5", "days": 3, "near": ["}a\\""], "x": {"y": true}}', name="get_weather")],
    ),
    "arguments of Kimi K3 are of the type that they name": (
        "kimi-k3",
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a&quot;" type="string"<|sep|>'
        '5<|close|>argument<|sep|><|open|>argument key="b" type="object"<|sep|>{"c": 1}<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
        [call('{"a\\"": "5", "b": {"c": 1}}')],
    ),
    "elements are typed within elements": (
        "minimax-m3",
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=get_weather>]<]minimax[>[<near>]<]minimax[>[<item>5"
        "]<]minimax[>[</item>]<]minimax[>[</near>]<]minimax[>[<x>]<]minimax[>[<y>5]<]minimax[>[</y>]<]minimax[>[<y>6"
        "]<]minimax[>[</y>]<]minimax[>[</x>]<]minimax[>[</invoke>]<]minimax[>[</tool_call><|im_end|>",
        [call('{"near": ["5"], "x": {"y": ["5", "6"]}}', name="get_weather")],
    ),
    "line breaks at seams are dropped and others kept": (
        "qwen",
        '<think>\n\n  a\n\nb\n\n</think>\n\n  c\n\nd\n\n<tool_call>\n{"name": "f"}\n</tool_call>\n\n  e\n<|im_end|>',
        [analysis("  a\n\nb"), final("  c\n\nd", END), call("{}"), final("  e\n")],
    ),
}


@pytest.mark.parametrize("case", REASONING)
def test_reasoning_in_which_the_prompt_ended_is_read(case: str) -> None:
    markup, text, messages = REASONING[case]
    assert read(markup, text, thinking=True) == messages


@pytest.mark.parametrize("case", TURNS)
def test_a_turn_is_read_as_it_was_meant(case: str) -> None:
    markup, text, messages = TURNS[case]
    assert read(markup, text) == messages


@pytest.mark.parametrize("quoted", ["<think>", "</think>", "<tool_call>", "</tool_call>"])
def test_a_mark_that_is_quoted_in_ordinary_tokens_is_text(quoted: str) -> None:
    marks = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    tokens = [*tokens_of("Write ", marks), *tokens_of(quoted, ()), *tokens_of(" so.<|im_end|>", marks)]
    segments = segments_of(parser("qwen", marks), [[token] for token in tokens])
    assert messages_of(segments) == [final(f"Write {quoted} so.")]
    assert messages_of(segments_of(parser("qwen", marks), [tokens])) == [final(f"Write {quoted} so.")]


def test_an_end_that_the_engine_leaves_out_of_the_text_counts() -> None:
    reader = parser("think")
    assert messages_of(reader.feed([1001, SPECIAL["<|im_end|>"]], "Yes")) == [final("Yes")]
    assert reader.end() == []


def test_arguments_go_out_as_they_were_written() -> None:
    arguments = '{ "a":[1,{"b":"}\\"]"}],\n"c" :"</tool_call>"}'
    text = f'<tool_call>{{"name":"f","arguments":{arguments}}}</tool_call><|im_end|>'
    assert read("qwen", text) == [call(arguments)]


def test_values_are_typed_by_the_schema() -> None:
    values = {"days": "3", "metric": "True", "near": '["a"]', "city": "5", "other": "5"}
    inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    text = f"<tool_call>\n<function=get_weather>\n{inside}</function>\n</tool_call>"
    (message,) = read("qwen-coder", text)
    assert json.loads(message.text) == {"days": 3, "metric": True, "near": ["a"], "city": "5", "other": "5"}


DEFINED = {
    "Person": {"properties": {"zip": {"$ref": "#/$defs/Zip"}, "ages": {"type": "array", "items": {"type": "integer"}}}},
    "Zip": {"type": "string"},
}


@pytest.mark.parametrize(
    "person", [{"$ref": "#/$defs/Person"}, {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Person"}]}, DEFINED["Person"]]
)
def test_elements_are_typed_by_all_that_a_schema_refers_to(person: object) -> None:
    lengths = {"type": "object", "additionalProperties": {"type": "number"}}
    schema = {"properties": {"person": person, "lengths": lengths}, "$defs": DEFINED}
    arguments = {"person": {"zip": "90210", "ages": [5, 6], "other": "5"}, "lengths": {"a": 1.5}, "other": "true"}
    reader = StreamParser(MARKUPS["minimax-m3"], {}, {"f": schema}, {}, thinking=False)
    text = WRITING["minimax-m3"].section.format(minimax_m3("f", arguments))
    (message,) = messages_of([*reader.feed([1], text), *reader.end()])
    assert json.loads(message.text) == arguments


def test_types_are_soon_found_where_a_schema_refers_to_itself() -> None:
    itself = {"anyOf": [{"type": "integer"}] + [{"$ref": "#/properties/x"}] * 20}
    begin = time.process_time()
    assert types_of({"properties": {"x": itself}}, itself) == {"integer"}
    nothing = {"anyOf": [{"$ref": "#/properties/x"}] * 20}
    assert types_of({"properties": {"x": nothing}}, nothing) is None
    assert time.process_time() - begin < 0.1


def test_a_text_goes_out_as_it_comes_and_a_number_at_its_end() -> None:
    reader = parser("qwen-coder", ())
    head = "<tool_call>\n<function=get_weather>\n<parameter=city>\n"
    assert [each for each in reader.feed([1], head) if isinstance(each, str)] == ["{", '"city": ', '"']
    assert reader.feed([2], "Par") == ["Par"]
    assert reader.feed([3], 'is "\n') == ['is \\"']
    assert reader.feed([4], "</parameter>\n<parameter=days>\n1") == ['"', ', "days": ']
    assert reader.feed([5], "2\n</parameter>") == ["12"]


@pytest.mark.parametrize(
    "shred", ["<", "\n", "</think>", '<tool_call>{"arguments": "', '{"a":', "<parameter=a>", "'", "[", "]<]minimax[>[<"]
)
@pytest.mark.parametrize("markup", ["hermes", "qwen-coder", "kimi", "kimi-k3", "gemma-4", "llama-4", "minimax-m3"])
def test_time_is_linear_in_the_text(markup: str, shred: str) -> None:
    opening = written(markup, Turn("a", "b", [("get_weather", {"city": "x"})]))
    opening = opening[: opening.index("x")]

    def taken(times: int) -> float:
        return seconds(markup, list(opening + shred * times))

    taken(100)
    short = min(taken(2_000 // len(shred)) for _ in range(3))
    assert min(taken(16_000 // len(shred)) for _ in range(3)) < 8 * 3 * short


@pytest.mark.parametrize("shred", [" ", ":1"])
@pytest.mark.parametrize("begun", ["", "functions.", '{"name": "'])
@pytest.mark.parametrize("markup", ["hermes", "kimi", "minimax", "gemma-4", "llama-4", "minimax-m3"])
def test_a_call_that_never_gets_a_name_is_soon_found_out(markup: str, begun: str, shred: str) -> None:
    opening = MARKUPS[markup].call + begun

    def taken(size: int) -> float:
        return min(seconds(markup, [opening, *shred * size] * 4) for _ in range(3))

    taken(100)
    assert taken(256) < 8 * 8 * 2 * taken(32)


def seconds(markup: str, texts: list[str]) -> float:
    """What reading a chunk of each of these texts takes, with an id for each character."""
    reader = parser(markup, (), thinking=False)
    chunks = [([1] * len(text), text) for text in texts]
    begin = time.process_time()
    for ids, text in chunks:
        reader.feed(ids, text)
    reader.end()
    return time.process_time() - begin
