"""Turns as models write them, by the templates of their families; and what hypothesis draws of such turns."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.markup.streams import END, SPECIAL, Token, ordinary

Arguments = Mapping[str, Any]

BAR, LOW = "\uff5c", "\u2581"
DSML = f"{BAR}DSML{BAR}"


def mark(words: str) -> str:
    return f"<{BAR}{words.replace(' ', LOW)}{BAR}>"


class Turn(NamedTuple):
    """What somebody says in one turn."""

    reasoning: str
    text: str
    calls: Sequence[tuple[str, Arguments]]
    behind: str = ""
    """What is said behind the calls."""


def plain_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def bare(value: Any) -> str:
    """A value as it stands in XML: a text without quotes."""
    return value if isinstance(value, str) else plain_json(value)


def hermes(name: str, arguments: Arguments) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {plain_json(arguments)}}}\n</tool_call>'


def coder(name: str, arguments: Arguments) -> str:
    inside = "".join(f"<parameter={key}>\n{bare(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def glm(name: str, arguments: Arguments) -> str:
    inside = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{bare(value)}</arg_value>\n" for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{inside}</tool_call>"


def deepseek_v3(name: str, arguments: Arguments) -> str:
    return deepseek(f"function{mark('tool sep')}{name}\n```json\n{plain_json(arguments)}\n```")


def deepseek_v31(name: str, arguments: Arguments) -> str:
    return deepseek(f"{name}{mark('tool sep')}{plain_json(arguments)}")


def deepseek(inside: str) -> str:
    return f"{mark('tool call begin')}{inside}{mark('tool call end')}"


def dsml(name: str, arguments: Arguments, space: str = "") -> str:
    opens, closes = f"<{DSML}{space}", f"</{DSML}{space}"
    tags = {key: f'name="{key}" string="{str(isinstance(value, str)).lower()}"' for key, value in arguments.items()}
    inside = "".join(
        f"{opens}parameter {tags[key]}>{bare(value)}{closes}parameter>\n" for key, value in arguments.items()
    )
    return f'{opens}invoke name="{name}">\n{inside}{closes}invoke>\n'


def dsml_spaced(name: str, arguments: Arguments) -> str:
    return dsml(name, arguments, " ")


def kimi(name: str, arguments: Arguments) -> str:
    return f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{plain_json(arguments)}<|tool_call_end|>"


def minimax(name: str, arguments: Arguments) -> str:
    inside = "".join(f'<parameter name="{key}">{bare(value)}</parameter>\n' for key, value in arguments.items())
    return f'<invoke name="{name}">\n{inside}</invoke>\n'


def seed(name: str, arguments: Arguments) -> str:
    inside = "".join(f"<parameter={key}>{bare(value)}</parameter>\n" for key, value in arguments.items())
    return f"<seed:tool_call>\n<function={name}>\n{inside}</function>\n</seed:tool_call>\n"


def mistral(name: str, arguments: Arguments) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{plain_json(arguments)}"


def gemma(name: str, arguments: Arguments) -> str:
    inside = ",".join(f"{key}:{gemma_value(value)}" for key, value in arguments.items())
    return f"<|tool_call>call:{name}{{{inside}}}<tool_call|>"


def gemma_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(gemma_value, value))}]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else plain_json(value)


def llama(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def kimi_k3(name: str, arguments: Arguments) -> str:
    inside = "".join(
        f'<|open|>argument key="{key}" type="{kind(value)}"<|sep|>{bare(value)}<|close|>argument<|sep|>'
        for key, value in arguments.items()
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{inside}<|close|>call<|sep|>'


def kind(value: Any) -> str:
    return {str: "string", bool: "boolean", list: "array"}.get(type(value), "number")


MINIMAX = "]<]minimax[>["


def minimax_m3(name: str, arguments: Arguments) -> str:
    inside = "".join(element(key, value) for key, value in arguments.items())
    return f'{MINIMAX}<invoke name="{name}">{inside}{MINIMAX}</invoke>\n'


def element(name: str, value: Any) -> str:
    if isinstance(value, list | dict):
        within = value.items() if isinstance(value, dict) else [("item", each) for each in value]
        value = "".join(element(key, each) for key, each in within)
    return f"{MINIMAX}<{name}>{bare(value)}{MINIMAX}</{name}>"


class Writing(NamedTuple):
    """How a family writes: what opens and closes reasoning, calls and their section, and one call."""

    call: Callable[[str, Arguments], str] | None = None
    think: str = "<think>\n{}\n</think>\n\n"
    section: str = "{}"
    before: str = "\n"
    """What stands between the text and the calls."""
    between: str = "\n"
    """What stands between two calls."""
    behind: str = "\n"
    """What stands between calls and text behind them."""
    answer: str = "{}"
    end: str = ""
    """The text before the end of a turn."""


DEEPSEEK = f"{mark('tool calls begin')}{{}}{mark('tool calls end')}"

WRITING: Mapping[str, Writing] = {
    "plain": Writing(think=""),
    "think": Writing(),
    "hermes": Writing(hermes),
    "qwen": Writing(hermes),
    "qwen-coder": Writing(coder),
    "glm": Writing(glm, think="<think>{}</think>\n"),
    "deepseek-v3": Writing(deepseek_v3, "<think>{}</think>", DEEPSEEK, "", behind=""),
    "deepseek-v3.1": Writing(deepseek_v31, "<think>{}</think>", DEEPSEEK, "", "", ""),
    "deepseek-v3.2": Writing(
        dsml, "<think>{}</think>", f"<{DSML}function_calls>\n{{}}</{DSML}function_calls>", "\n\n", ""
    ),
    "deepseek-v4": Writing(dsml, "<think>{}</think>", f"<{DSML}tool_calls>\n{{}}</{DSML}tool_calls>", "\n\n", ""),
    "deepseek-v4.1": Writing(dsml_spaced, "<think>{}</think>", f"<{DSML} calls>\n{{}}</{DSML} calls>", "\n\n", ""),
    "kimi": Writing(kimi, "<think>{}</think>", "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>", "", "", ""),
    "minimax": Writing(minimax, "<think>\n{}\n</think>\n\n", "<minimax:tool_call>\n{}</minimax:tool_call>", "\n", ""),
    "minimax-m3": Writing(
        minimax_m3, "<mm:think>{}</mm:think>", f"{MINIMAX}<tool_call>\n{{}}{MINIMAX}</tool_call>", "\n", ""
    ),
    "kimi-k3": Writing(
        kimi_k3,
        "<|open|>think<|sep|>{}<|close|>think<|sep|>",
        "<|open|>tools<|sep|>{}<|close|>tools<|sep|>",
        "",
        "",
        "",
        "<|open|>response<|sep|>{}<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
    ),
    "gemma-4": Writing(gemma, "<|channel>thought\n{}<channel|>", before="", between="", behind=""),
    "llama-4": Writing(llama, "", "[{}]", "", ", "),
    "mistral": Writing(mistral, "[THINK]{}[/THINK]", before="", between="", behind=""),
    "seed": Writing(seed, "<seed:think>{}</seed:think>", between=""),
}


def written(markup: str, turn: Turn) -> str:
    """A turn as a model writes it, up to the mark that ends it."""
    how = WRITING[markup]
    text = how.think.format(turn.reasoning) if turn.reasoning and how.think else ""
    text += how.answer.format(turn.text) if turn.text or not turn.calls or how.answer != "{}" else ""
    if turn.calls and how.call:
        calls = how.between.join(how.call(name, arguments) for name, arguments in turn.calls)
        text += (how.before if turn.text else "") + how.section.format(calls)
        text += how.behind + turn.behind if turn.behind else ""
    return text + how.end + END


WORDS = (*("tell", "weather", "in", "<", ">", "</", "<thin", "{", "}", '"', "\\", "[1]"), "\u00f6", "\u4eac\u90fd")


def draw_turn(chance: random.Random, tools: Sequence[str] = ("get_weather", "now", "unknown")) -> Turn:
    """A turn whose words have numbers: each word that a model sampled can be looked for in what is read."""
    count = iter(range(10_000))

    def words(most: int) -> str:
        return " ".join(
            chance.choice((f"w{next(count):04}z", chance.choice((*WORDS, "\n", "\n\n"))))
            for _ in range(chance.randint(0, most))
        )

    def arguments() -> Arguments:
        drawn = {
            "city": words(5),
            "days": chance.randint(-3, 10**6),
            "metric": chance.random() < 0.5,
            "near": [words(2), words(2)],
            "other": words(3),
        }
        return {key: value for key, value in drawn.items() if chance.random() < 0.6}

    calls = [(chance.choice(tools), arguments()) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    return Turn(words(8).strip(), words(8).strip(), calls, words(3).strip())


def mutated(
    tokens: Sequence[Token],
    marks: Sequence[str],
    chance: random.Random,
    most: int,
) -> list[Token]:
    """The tokens with some lost, doubled, moved or added, marks in ordinary tokens among them; perhaps cut short."""
    out = list(tokens)
    for _ in range(chance.randint(0, most)):
        if not out:
            break
        place = chance.randrange(len(out))
        match chance.randrange(7):
            case 0:
                del out[place]
            case 1:
                out.insert(place, out[place])
            case 2:
                out.insert(chance.randrange(len(out)), out.pop(place))
            case 3 if marks:
                mark = chance.choice(marks)
                out.insert(place, Token(SPECIAL.get(mark, 1), mark))
            case 4 if marks:
                out[place:place] = ordinary(chance.choice(marks), chance)
            case 5:
                out[place:place] = ordinary(chance.choice(('"', "{", "}", "\\", "\n", " ", ":", ",", "x", ">")), chance)
            case _ if chance.random() < 0.2:
                del out[place:]
            case _:
                pass
    return out
