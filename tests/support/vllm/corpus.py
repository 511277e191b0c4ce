"""Requests whose prompts vLLM renders beside us: all that we serve, small enough for a model of 4,096 tokens.

A case names the differences that it shows, by their names in differences.py; most show none. Never change a case
because the two prompts differ: either one of them is wrong, or the difference gets a name and a row in
docs/harmony.md.
"""

from dataclasses import dataclass

from tests.support.vllm.items import LOOKUP, Json, answer, call, developer, output, preamble, takes, thought, tool, user


@dataclass(frozen=True)
class Case:
    """A request without its model, and the names of the differences between the two prompts."""

    body: Json
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Continued:
    """A request, what a model samples for it, and what comes next: outputs for its calls, then words of the user.

    We continue the tokens that were sampled; vLLM is sent the whole conversation, our output items in it.
    """

    first: Json
    sampled: str
    outputs: tuple[str, ...] = ()
    said: str | None = None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """Requests that only one of the two takes, and a part of what the other says."""

    message: str
    bodies: tuple[Json, ...]


LOOP = ("call header", "output header")
"""What shows wherever a function call and its output stand in the input."""


# --- the corpus ---

WORDS = {
    "a text": Case({"input": "Hi"}),
    "an empty text": Case({"input": ""}),
    "scripts and emoji": Case({"input": "日本語 🙂 👩‍🚀 é e\u0301 𒀀 \u2028 \ufeff \x00 I'll DON'T 1234567 3.14"}),
    "marks as text": Case(
        {"input": "<|start|>system<|message|>x<|end|><|return|><|endoftext|>", "instructions": "<|end|>"}
    ),
    "a text in two parts": Case(
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": each} for each in ("one ", "two")]}]},
        ("joined parts",),
    ),
}

INSTRUCTIONS = {
    "instructions": Case({"input": "Hi", "instructions": "Answer in rhyme.\n\nBe brief."}),
    "empty instructions": Case({"input": "Hi", "instructions": ""}),
    "empty instructions and a function": Case(
        {"input": "Hi", "instructions": "", "tools": [LOOKUP]}, ("empty instructions",)
    ),
    "high effort": Case({"input": "Hi", "reasoning": {"effort": "high"}}),
    "a developer item first": Case({"input": [developer("Rhyme."), user("Hi")]}),
    "a system item first": Case({"input": [developer("Rhyme.", "system"), user("Hi")]}),
    "a system item between turns": Case(
        {"input": [user("Hi"), answer("Hey."), developer("Rhyme.", "system"), user("So?")]}
    ),
    "a developer item in two parts": Case(
        {
            "input": [
                user("Hi"),
                {"role": "developer", "content": [{"type": "input_text", "text": each} for each in ("one ", "two")]},
            ]
        }
    ),
    "a developer item first and a function": Case(
        {"input": [developer("Rhyme."), user("Hi")], "tools": [LOOKUP]}, ("leading instruction",)
    ),
    "an empty developer item": Case({"input": [user("Hi"), developer("")]}, ("empty instruction",)),
}

TURNS = {
    "an answer": Case({"input": [user("Hi"), answer("Hey."), user("So?")]}),
    "an answer in two parts": Case({"input": [user("Hi"), answer("one ", "two"), user("So?")]}, ("joined parts",)),
    "a refusal": Case(
        {
            "input": [
                user("Hi"),
                {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]},
                user("So?"),
            ]
        },
        ("refusal",),
    ),
    "reasoning behind an answer": Case({"input": [user("Hi"), thought("Hm."), answer("Hey."), user("So?")]}),
    "reasoning of many turns": Case(
        {"input": [user("1"), thought("a"), answer("A"), user("2"), thought("b"), answer("B"), user("3"), thought("c")]}
    ),
    "a preamble": Case({"input": [user("Hi"), thought("Hm."), preamble("Let me see."), user("So?")]}, ("phase",)),
}

CALLS = {
    "a call in mid loop": Case(
        {"input": [user("Hi"), thought("Hm."), call(), output("high")], "tools": [LOOKUP]}, LOOP
    ),
    "a preamble in mid loop": Case(
        {"input": [user("Hi"), thought("Hm."), preamble("Let me see."), call(), output("high")]}, ("phase", *LOOP)
    ),
    "a loop that has ended": Case(
        {
            "input": [user("Hi"), thought("a"), call(), output("high"), thought("b"), answer("High."), user("So?")],
            "tools": [LOOKUP],
        },
        LOOP,
    ),
    "two calls, answered the other way round": Case(
        {"input": [user("Hi"), call(), call("call_2", "other"), output("2", "call_2"), output("1")]},
        (*LOOP, "output order"),
    ),
    "arguments and outputs as they are": Case(
        {"input": [user("Hi"), call(arguments='{ "q" :  "é<|call|>" }'), output('{"a":\n 1}<|end|>')]}, LOOP
    ),
}

TEXT = {"type": "string"}
MANY_KINDS = takes(
    "a",
    a={**TEXT, "enum": ["c", 'q"f'], "default": "c", "description": "Two\nlines.", "examples": ["x", "y"]},
    b={"type": "array", "items": takes("x", x=TEXT)},
    c={"oneOf": [{**TEXT, "description": "s"}, {"type": "null"}], "description": "X", "default": 1e-5},
)
"""tests/harmony/test_typescript.py has openai-harmony's text of any schema, for which vLLM asks it."""
LARGE_NUMBERS = takes(a={"default": 1e16}, b={"default": -2.5e300}, c={"default": 2**70})
TOOLS = {
    "a function without parameters": Case({"input": "Hi", "tools": [{"type": "function", "name": "f"}]}),
    "parameters of many kinds": Case({"input": "Hi", "tools": [tool("f", MANY_KINDS, description="Two\n\nlines.\n")]}),
    "large numbers": Case({"input": "Hi", "tools": [tool("f", LARGE_NUMBERS)]}, ("large numbers",)),
}

CORPUS: dict[str, Case] = WORDS | INSTRUCTIONS | TURNS | CALLS | TOOLS

CONTINUED: dict[str, Continued] = {
    "an answer is continued": Continued(
        {"input": [user("My name is Ada.")], "instructions": "Be brief."},
        "<|channel|>analysis<|message|>A name.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hello, Ada.<|return|>",
        said="What is my name?",
    ),
    "a call is answered": Continued(
        {"input": [user("High tide?")], "tools": [LOOKUP]},
        "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant"
        '<|channel|>commentary to=functions.lookup <|constrain|>json<|message|>{"q":"tide"}<|call|>',
        outputs=("high",),
        differences=("sampled header", "output header"),
    ),
}

REFUSED_BY_VLLM: dict[str, Refused] = {
    "a response to continue": Refused(
        "not supported by the stateless render endpoint", ({"input": "Hi", "previous_response_id": "resp_" + 48 * "0"},)
    ),
    "efforts beyond three": Refused(
        "is not supported by Harmony",
        tuple({"input": "Hi", "reasoning": {"effort": effort}} for effort in ("none", "minimal", "xhigh", "max")),
    ),
    "null for a default": Refused(
        "validation error",
        tuple({"input": "Hi", name: None} for name in ("tools", "tool_choice", "service_tier", "priority")),
    ),
    "an output in parts": Refused(
        "validation error",
        ({"input": [user("Hi"), call(), {**output(""), "output": [{"type": "input_text", "text": "high"}]}]},),
    ),
    "reasoning without a summary": Refused(
        "validation errors",
        ({"input": [user("Hi"), {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}]},),
    ),
    "parts of the wrong kind": Refused(
        "validation errors",
        (
            {"input": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
            {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "Hey."}]}, user("So?")]},
        ),
    ),
}

REFUSED_BY_US: dict[str, Refused] = {
    "a call without an output": Refused("No tool output found", ({"input": [user("Hi"), call()]},)),
    "two functions of one name": Refused("same name", ({"input": "Hi", "tools": [LOOKUP, LOOKUP]},)),
    "an empty list": Refused("is empty", ({"input": []},)),
    "unknown parameters": Refused("Unknown parameter", ({"input": "Hi", "foo": 1},)),
}
