"""The markups that we can read, by name; and how to make a parser of one.

Sources of the forms are the models' own chat templates and cards; docs/models.md names them for each family.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from service.harmony.segments import Segment
from service.markup.by_server import ByServer
from service.markup.call import Call
from service.markup.families import ENDS, FAMILIES
from service.markup.json_call import JsonCall
from service.markup.named_call import NamedCall
from service.markup.speech import SERVER
from service.markup.stream import Markup, Part, Schemas, Seams, StreamParser
from service.markup.xml_call import Shape, XmlCall


class Parser(Protocol):
    """Reads what a model samples in one generation."""

    @property
    def part(self) -> Part:
        """The part being written."""
        ...

    def feed(self, ids: Sequence[int], text: str) -> list[Segment]:
        """Takes some sampled ids and the text that the engine decoded of them, special tokens spelled out; returns the
        segments that they complete. The ids of all segments in order are the sampled ones, save those behind the last
        call; a segment may have none, where one token ends a segment and begins the next.
        """
        ...

    def end(self) -> list[Segment]:
        """The generation is over: close what is open."""
        ...


def _json(*marks: str) -> Callable[[Schemas], Call]:
    awaited = frozenset(marks)
    return lambda schemas: JsonCall(awaited)


def _named(separator: str, *last: str, name: str = "(.*)", typed: bool = False) -> Callable[[Schemas], Call]:
    pattern = re.compile(name, re.DOTALL)
    return lambda schemas: NamedCall(separator, frozenset(last), typed=typed, name=pattern)


def _xml(shape: Shape) -> Callable[[Schemas], Call]:
    return partial(XmlCall, shape, shape.awaited())


THINK, THINK_END = "<think>", "</think>"
CALL, CALL_END = "<tool_call>", "</tool_call>"

_HERMES = Markup(THINK, THINK_END, call=CALL, call_end=CALL_END, reader=_json(CALL, CALL_END))

_CODER = Markup(
    THINK,
    THINK_END,
    sections=(CALL,),
    section_end=CALL_END,
    call="<function=",
    call_end="</function>",
    reader=_xml(Shape((">",), "<parameter=", ">", "</parameter>", "</function>", line=True, last=(CALL_END,))),
)

_GLM = Markup(
    THINK,
    THINK_END,
    call=CALL,
    call_end=CALL_END,
    reader=_xml(Shape(("\n", "<arg_key>"), "<arg_key>", "</arg_key>", "</arg_value>", CALL_END, value="<arg_value>")),
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)

_BAR, _LOW = "\uff5c", "\u2581"


def _deepseek_mark(*words: str) -> str:
    return f"<{_BAR}{_LOW.join(words)}{_BAR}>"


_DEEPSEEK_CALL = _deepseek_mark("tool", "call", "begin")
_DEEPSEEK_CALL_END = _deepseek_mark("tool", "call", "end")
_DEEPSEEK_SECTION_END = _deepseek_mark("tool", "calls", "end")
_DEEPSEEK_SEPARATOR = _deepseek_mark("tool", "sep")


def _deepseek(*, typed: bool) -> Markup:
    """The markup of DeepSeek's special tokens; `typed` is that of V3 and R1."""
    marks = (_DEEPSEEK_SEPARATOR, _DEEPSEEK_CALL_END, _DEEPSEEK_SECTION_END, _DEEPSEEK_CALL)
    return Markup(
        THINK,
        THINK_END,
        sections=(_deepseek_mark("tool", "calls", "begin"),),
        section_end=_DEEPSEEK_SECTION_END,
        call=_DEEPSEEK_CALL,
        call_end=_DEEPSEEK_CALL_END,
        reader=_named(*marks, typed=typed),
        inner=(_DEEPSEEK_SEPARATOR,),
        seams=Seams("", ""),
    )


def _dsml(section: str, *others: str, space: str = "") -> Markup:
    """DeepSeek's markup of its own, DSML: tags whose names begin with a mark."""
    opens, closes = f"<{_BAR}DSML{_BAR}{space}", f"</{_BAR}DSML{_BAR}{space}"
    section_end = f"{closes}{section}>"
    return Markup(
        THINK,
        THINK_END,
        sections=tuple(f"{opens}{name}>" for name in (section, *others)),
        section_end=section_end,
        call=f"{opens}invoke",
        call_end=f"{closes}invoke>",
        reader=_xml(
            Shape(
                (">",),
                f"{opens}parameter",
                ">",
                f"{closes}parameter>",
                f"{closes}invoke>",
                tagged=True,
                last=(section_end,),
            )
        ),
        seams=Seams("", "\n"),
    )


_KIMI_CALL, _KIMI_CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_KIMI_SECTION_END = "<|tool_calls_section_end|>"
_KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"

_KIMI = Markup(
    THINK,
    THINK_END,
    sections=("<|tool_calls_section_begin|>",),
    section_end=_KIMI_SECTION_END,
    call=_KIMI_CALL,
    call_end=_KIMI_CALL_END,
    reader=_named(
        *(_KIMI_ARGUMENTS, _KIMI_CALL_END, _KIMI_SECTION_END, _KIMI_CALL), name=r"(?:functions\.)?(.*?)(?::\d+)?"
    ),
    inner=(_KIMI_ARGUMENTS,),
    seams=Seams("", ""),
)

_MINIMAX = Markup(
    THINK,
    THINK_END,
    sections=("<minimax:tool_call>",),
    section_end="</minimax:tool_call>",
    call="<invoke ",
    call_end="</invoke>",
    reader=_xml(
        Shape((">",), "<parameter ", ">", "</parameter>", "</invoke>", tagged=True, last=("</minimax:tool_call>",))
    ),
)

_SEED_CALL_END = "</seed:tool_call>"
_SEED = Markup(
    "<seed:think>",
    "</seed:think>",
    sections=("<seed:tool_call>",),
    section_end=_SEED_CALL_END,
    call="<function=",
    call_end="</function>",
    reader=_xml(Shape((">",), "<parameter=", ">", "</parameter>", "</function>", last=(_SEED_CALL_END,))),
)

MARKUPS: Mapping[str, Markup] = {
    "plain": Markup(),
    "think": Markup(THINK, THINK_END),
    "hermes": _HERMES,
    "qwen": _HERMES,
    "qwen-coder": _CODER,
    "glm": _GLM,
    "deepseek-v3": _deepseek(typed=True),
    "deepseek-v3.1": _deepseek(typed=False),
    "deepseek-v3.2": _dsml("function_calls"),
    "deepseek-v4": _dsml("tool_calls", "toolcalls", "tool"),
    "deepseek-v4.1": _dsml("calls", space=" "),
    "kimi": _KIMI,
    "minimax": _MINIMAX,
    "seed": _SEED,
}
"""Every markup that we can read, by its name in settings; a server that reads its model itself has none."""


def make(
    family: str,
    *,
    marks: Mapping[str, int],
    schemas: Mapping[str, Mapping[str, Any]],
    thinking: bool,
    recipients: Mapping[str, str] | None = None,
) -> Parser:
    """The parser of a family's markup (`families`), or of a markup that is named itself.

    `marks` are the special tokens of the vocabulary by their spelling: those of the markup, of which then only the id
    counts, and those of ENDS, which end the model's turn. `schemas` are the schemas of the tools' arguments by the
    names that the model knows, and `recipients` the recipients of their calls, where that isn't the name as a
    function. `thinking` is whether the prompt ends inside of reasoning.
    """
    if family == SERVER:
        return ByServer(recipients or {})
    known = FAMILIES.get(family)
    markup = MARKUPS[known.markup if known else family]
    own = frozenset(markup.spellings)
    return StreamParser(
        markup,
        marks={spelling: id for spelling, id in marks.items() if spelling in own},
        ends={spelling: id for spelling, id in marks.items() if spelling in ENDS and spelling not in own},
        schemas=schemas,
        thinking=thinking,
        recipients=recipients or {},
    )
