"""How models write: the families, and the markup of each, which is data; the parser of all of them is in stream.py.

These are the two tables of it; docs/models.md shows the first, with its sources and the models that were tried. A model
is recognised by its name, and where that says nothing by the marks that are single tokens of its vocabulary. Any other
model is read as plain text, or with its reasoning taken out where it has marks for that.
"""

import re
from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType

import msgspec

from service.engine.port import SERVER
from service.features.models.markup.calls import JsonForm, XmlForm
from service.features.models.markup.literals import ElementForm, LiteralForm


class CallsForm(msgspec.Struct, frozen=True):
    """How a template writes calls: the text around a section of them, between two, and around the arguments of one.

    `before` and `behind` have the name in the place of `{}`; `style` is xgrammar's name for arguments in XML, and
    `number` is the mark behind the number of a call, where it has one.
    """

    before: str
    behind: str
    style: str = "json"
    opens: str = ""
    closes: str = ""
    between: str = "\n"
    number: str = ""


class Markup(msgspec.Struct, frozen=True):
    """How a model writes its turns. An empty spelling is a mark that the markup lacks."""

    think: str = "<think>"
    think_end: str = "</think>"
    sections: tuple[str, ...] = ()
    """The openings of a section of calls, in each way that models write it."""
    section_end: str = ""
    call: str = ""
    call_end: str = ""
    reads: JsonForm | XmlForm | LiteralForm | ElementForm | None = None
    """How calls are read; None where there are none."""
    form: CallsForm | None = None
    """How calls are written, where they can be constrained."""
    inner: tuple[str, ...] = ()
    """Marks inside of a call that may be one token each."""
    parts: tuple[str, ...] = ()
    """Parts of marks that may be one token each: then these marks begin and end with those tokens."""
    around: tuple[str, ...] = ()
    """Marks around answers, and at the end of a turn: nothing comes of them."""
    more: str = ""
    """The mark of another call behind one; those of such a markup begin a turn, or are none."""
    thinking_seam: str = "\n"
    """The characters that a template strips around reasoning."""
    call_seam: str = "\n"
    """The characters that it strips around calls."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """All its marks that may be one token of a vocabulary."""
        ends = (self.think_end, *self.sections, self.section_end, self.call, self.call_end)
        return tuple(filter(None, (self.think, *ends, *self.inner, *self.parts, *self.around)))


BAR, LOW = "\uff5c", "\u2581"
DSML = f"{BAR}DSML{BAR}"
CALL, CALL_END = "<tool_call>", "</tool_call>"


def _bars(words: str) -> str:
    """A special token of DeepSeek's."""
    return f"<{BAR}{words.replace(' ', LOW)}{BAR}>"


_HERMES = Markup(
    call=CALL,
    call_end=CALL_END,
    reads=JsonForm(frozenset((CALL, CALL_END))),
    form=CallsForm('<tool_call>\n{{"name": "{}", "arguments": ', "}\n</tool_call>"),
)


def _named_calls(
    sections: tuple[str, str], call: tuple[str, str], separator: str, head: str, form: CallsForm
) -> Markup:
    """Calls whose names stand before their arguments, between special tokens."""
    return Markup(
        sections=sections[:1],
        section_end=sections[1],
        call=call[0],
        call_end=call[1],
        reads=JsonForm(frozenset((*call, sections[1])), frozenset((separator,)), re.compile(head, re.DOTALL)),
        form=msgspec.structs.replace(form, opens=sections[0], closes=sections[1]),
        inner=(separator,),
        thinking_seam="",
        call_seam="",
    )


_CALLS = _bars("tool calls begin"), _bars("tool calls end")
_ONE, _ONE_END, _SEPARATOR = _bars("tool call begin"), _bars("tool call end"), _bars("tool sep")
_KIMI_CALLS = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"


def _functions(section: tuple[str, str], style: str = "", *, line: bool, think: str = "think") -> Markup:
    """Calls as `<function=NAME>`, in a section each."""
    return Markup(
        f"<{think}>",
        f"</{think}>",
        sections=section[:1],
        section_end=section[1],
        call="<function=",
        call_end="</function>",
        reads=XmlForm("</function>", "<parameter=", "</parameter>", line=line, last=(section[1], "<function=")),
        form=CallsForm(f"{section[0]}\n<function={{}}>\n", f"\n</function>\n{section[1]}", style) if style else None,
    )


def _invokes(prefix: str, section: str, style: str, *others: str, thinking_seam: str = "") -> Markup:
    """Calls as `<invoke name="NAME">`, in one section; `prefix` stands before the names of all tags."""
    opens, closes, ending = f"<{prefix}", f"</{prefix}", f"</{section}>"
    return Markup(
        sections=(f"<{section}>", *others),
        section_end=ending,
        call=f"{opens}invoke ",
        call_end=f"{closes}invoke>",
        reads=XmlForm(f"{closes}invoke>", f"{opens}parameter ", f"{closes}parameter>", tagged=True, last=(ending,)),
        form=CallsForm(f'{opens}invoke name="{{}}">\n', f"{closes}invoke>\n", style, f"<{section}>\n", ending, ""),
        parts=(DSML,) if DSML in prefix else (),
        thinking_seam=thinking_seam,
    )


_OPEN, _CLOSE, _SEP = KIMI_PARTS = "<|open|>", "<|close|>", "<|sep|>"
_MINIMAX = "]<]minimax[>["
_GEMMA_CALL, _GEMMA_END, _GEMMA_QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'


def _kimi(word: str) -> tuple[str, str]:
    """The marks of Kimi K3 that open and close something."""
    return f"{_OPEN}{word}{_SEP}", f"{_CLOSE}{word}{_SEP}"


_MISTRAL_INSIDE = "[ARGS]", "[CALL_ID]"

MARKUPS: Mapping[str, Markup] = {
    "plain": Markup("", ""),
    "think": Markup(),
    "hermes": _HERMES,
    "qwen": _HERMES,
    "qwen-coder": _functions((CALL, CALL_END), "qwen_xml", line=True),
    "glm": Markup(
        call=CALL,
        call_end=CALL_END,
        reads=XmlForm(
            CALL_END, "<arg_key>", "</arg_value>", "</arg_key>", "<arg_value>", name_ends=("\n", "<arg_key>")
        ),
        form=CallsForm("<tool_call>{}\n", "\n</tool_call>", "glm_xml"),
        inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "deepseek-v3": _named_calls(
        _CALLS,
        (_ONE, _ONE_END),
        _SEPARATOR,
        rf"\s*function\s*{_SEPARATOR}(?P<name>[^\n{BAR}]*)\n",
        CallsForm(f"{_ONE}function{_SEPARATOR}{{}}\n```json\n", f"\n```{_ONE_END}"),
    ),
    "deepseek-v3.1": _named_calls(
        _CALLS,
        (_ONE, _ONE_END),
        _SEPARATOR,
        rf"(?P<name>.*?){_SEPARATOR}",
        CallsForm(f"{_ONE}{{}}{_SEPARATOR}", _ONE_END, between=""),
    ),
    "deepseek-v3.2": _invokes(DSML, f"{DSML}function_calls", "deepseek_xml"),
    "deepseek-v4": _invokes(DSML, f"{DSML}tool_calls", "deepseek_xml", f"<{DSML}toolcalls>", f"<{DSML}tool>"),
    "deepseek-v4.1": _invokes(f"{DSML} ", f"{DSML} calls", "deepseek_v4_1_xml"),
    "kimi": _named_calls(
        _KIMI_CALLS,
        ("<|tool_call_begin|>", "<|tool_call_end|>"),
        _KIMI_ARGUMENTS,
        rf"\s*+(?:functions\.)?(?P<name>.*?)(?::\d+\s*)?{re.escape(_KIMI_ARGUMENTS)}",
        CallsForm("<|tool_call_begin|>functions.{}:", "<|tool_call_end|>", between="", number=_KIMI_ARGUMENTS),
    ),
    "minimax": _invokes("", "minimax:tool_call", "minimax_xml", thinking_seam="\n"),
    "mistral": Markup(
        "[THINK]",
        "[/THINK]",
        call="[TOOL_CALLS]",
        reads=JsonForm(
            frozenset(("[TOOL_CALLS]",)),
            frozenset(_MISTRAL_INSIDE),
            re.compile(r"\s*(?P<name>[^\s\[{]+)\s*(?:\[CALL_ID\]\s*\w*\s*)?(?:\[ARGS\]|(?=\{))"),
            closed=False,
        ),
        form=CallsForm("[TOOL_CALLS]{}[ARGS]", "", between=""),
        inner=_MISTRAL_INSIDE,
    ),
    "minimax-m3": Markup(
        "<mm:think>",
        "</mm:think>",
        sections=(f"{_MINIMAX}<tool_call>",),
        section_end=f"{_MINIMAX}</tool_call>",
        call=f"{_MINIMAX}<invoke ",
        reads=ElementForm(f"{_MINIMAX}<", f"{_MINIMAX}</invoke>", (f"{_MINIMAX}</tool_call>",)),
        parts=(_MINIMAX,),
    ),
    "kimi-k3": Markup(
        *_kimi("think"),
        sections=_kimi("tools")[:1],
        section_end=_kimi("tools")[1],
        call=f"{_OPEN}call ",
        reads=XmlForm(
            _kimi("call")[1],
            f"{_OPEN}argument ",
            _kimi("argument")[1],
            _SEP,
            name_ends=(_SEP,),
            tagged=True,
            last=_kimi("tools")[1:],
        ),
        thinking_seam="",
        call_seam="",
        parts=KIMI_PARTS,
        around=(*_kimi("response"), _kimi("message")[1]),
    ),
    "gemma-4": Markup(
        "<|channel>thought\n",
        "<channel|>",
        call=_GEMMA_CALL,
        call_end=_GEMMA_END,
        reads=LiteralForm(
            re.compile(r"\s*(?:call)?:\s*(?P<name>[^\s{}()]+)\s*[{(]"),
            re.compile(r"[^{}()]*"),
            _GEMMA_QUOTE,
            frozenset((_GEMMA_CALL, _GEMMA_END)),
        ),
        inner=(_GEMMA_QUOTE,),
        parts=("<|channel>",),
    ),
    "llama-4": Markup(
        "",
        "",
        section_end="]",
        call="[",
        reads=LiteralForm(
            re.compile(r"\s*(?P<name>[A-Za-z_][\w.-]*)\s*\((?=\s*(?:\)|[A-Za-z_]\w*\s*=))"),
            re.compile(r"\s*(?:[A-Za-z_][\w.-]*\s*(?:\(\s*(?:[A-Za-z_]\w*\s*)?)?)?"),
        ),
        around=("<|python_start|>", "<|python_end|>"),
        more=",",
    ),
    "seed": _functions(("<seed:tool_call>", "</seed:tool_call>"), line=False, think="seed:think"),
}
"""Every markup that we can read, by its name in settings; a server that reads its model itself has none."""


class ReasoningPlace(Enum):
    """The place of a turn's reasoning in the prompts of later turns."""

    NONE = "none"
    """The family doesn't reason."""
    LEFT_OUT = "left out"
    """It must not be passed: the model was trained without, or its API refuses it."""
    TEMPLATE = "template"
    """It is passed, and the template writes or drops it: most drop it before the last words of the user."""
    WITH_CALLS = "with calls"
    """It must be passed with every turn that called something, also before the last words of the user."""


KEEPS: Mapping[str, bool] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
    "keep_past_thinking": True,
    "preserved_thinking": True,
}
"""The options by which templates keep the reasoning of earlier turns: each has one of them, or none."""


class Family(msgspec.Struct, frozen=True):
    """One row: its markup, and how it is recognised (`names`, a regex searched in the model's name in any case;
    `marks`, of which each is one token). `keeps` is the option of KEEPS that its template names, which counts where a
    server doesn't show what its template writes. `effort` is the option that says how much to reason, and `efforts` are
    its words for our words, where it has others. `digits` is how many of them a call's id has, where its template takes
    no other.
    """

    name: str
    markup: str
    reasoning: ReasoningPlace
    names: str = ""
    marks: tuple[str, ...] = ()
    keeps: str = ""
    effort: str = "reasoning_effort"
    efforts: Mapping[str, str | int] = MappingProxyType({})
    digits: int = 0

    def effort_option(self, effort: str) -> dict[str, str | int]:
        """The option of a template that says how much to reason."""
        return {self.effort: self.efforts.get(effort, effort)}


MARKS = (
    *("<think>", "</think>", CALL, CALL_END, *MARKUPS["glm"].inner, *_CALLS, _ONE, _ONE_END, _SEPARATOR),
    *(*_KIMI_CALLS, "<|tool_call_begin|>", _KIMI_ARGUMENTS, "<|tool_call_end|>"),
    *("<minimax:tool_call>", "</minimax:tool_call>"),
    *("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    *("[THINK]", "[/THINK]", "[TOOL_CALLS]", *_MISTRAL_INSIDE),
    *(*KIMI_PARTS, DSML, _MINIMAX, "<mm:think>", "</mm:think>", "<|channel>", "<channel|>"),
    *(_GEMMA_CALL, _GEMMA_END, _GEMMA_QUOTE, "<|python_start|>", "<|python_end|>"),
)
"""All marks that some vocabulary has as one token."""

ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "</s>"),
    *(_bars("end of sentence"), "<|user|>", "<|observation|>", "[EOS]", "[e~[", "<seed:eos>"),
    *("<|end|>", "<|return|>", "<|end_of_role|>", "<turn|>", "<|eos|>", "<eos>"),
    *("<|tool_response>", "<|end_of_msg|>", "<|eot|>", "<|eom|>"),
)
"""The special tokens that end a model's turn. In ordinary tokens they are text."""

_MISTRAL_NAMES = r"magistral|devstral|mistral[-_ ](?:small[-_ ](?:3\.[2-9]|4)|(?:medium|large)[-_ ]3)|ministral[-_ ]3"

_QWEN_NAMES = r"qwen[-_ ]?(?:3\.(?:[6-9]|\d\d)|[4-9](?!\d*b))"
"""Qwen 3.6 and later; in a name such as Qwen-7B the number is a size."""

_CODER_NAMES = r"qwen[-_ ]?3(?:\.5|[-_ ]?coder)|nemotron[-_ ]?(?:v?3)|step[-_ ]?3\.5"

FAMILIES = {
    family.name: family
    for family in (
        Family(
            "kimi-k3",
            "kimi-k3",
            ReasoningPlace.WITH_CALLS,
            r"kimi[-_ ]?k3",
            (_OPEN, _SEP),
            effort="thinking_effort",
            efforts={"none": "low", "minimal": "low", "medium": "high", "xhigh": "max"},
        ),
        Family("kimi-k2", "kimi", ReasoningPlace.WITH_CALLS, r"kimi[-_ ]?k2", _KIMI_CALLS[:1]),
        Family(
            "deepseek-v4.1",
            "deepseek-v4.1",
            ReasoningPlace.WITH_CALLS,
            r"deepseek[-_ ]?v4\.1",
            keeps="drop_thinking",
            efforts={"minimal": "low", "medium": 62},
        ),
        Family("deepseek-v4", "deepseek-v4", ReasoningPlace.WITH_CALLS, r"deepseek[-_ ]?v4", keeps="drop_thinking"),
        Family("deepseek-v3.2", "deepseek-v3.2", ReasoningPlace.WITH_CALLS, r"deepseek[-_ ]?v3\.2(?!-exp)", (DSML,)),
        Family("deepseek-v3.1", "deepseek-v3.1", ReasoningPlace.LEFT_OUT, r"deepseek[-_ ]?v3\.(?:1|2-exp)"),
        Family("deepseek-r1", "deepseek-v3", ReasoningPlace.LEFT_OUT, r"deepseek[-_ ]?r1(?!.*distill)"),
        Family("deepseek-v3", "deepseek-v3", ReasoningPlace.NONE, r"deepseek[-_ ]?v3", _CALLS[:1]),
        Family("deepseek-r1-distill", "think", ReasoningPlace.LEFT_OUT, r"deepseek[-_ ]?r1.*distill"),
        Family("glm-4.7", "glm", ReasoningPlace.WITH_CALLS, r"glm[-_ ]?(?:4\.[7-9]|5)", keeps="clear_thinking"),
        Family("glm", "glm", ReasoningPlace.TEMPLATE, r"glm[-_ ]?4\.[56]", (CALL, "<arg_key>")),
        Family("minimax-m3", "minimax-m3", ReasoningPlace.WITH_CALLS, r"minimax[-_ ]?m3", (_MINIMAX, "<mm:think>")),
        Family("minimax-m2", "minimax", ReasoningPlace.WITH_CALLS, r"minimax[-_ ]?m2", ("<minimax:tool_call>",)),
        Family("gemma-4", "gemma-4", ReasoningPlace.TEMPLATE, r"gemma[-_ ]?4", (_GEMMA_CALL, "<|channel>")),
        Family("llama-4", "llama-4", ReasoningPlace.NONE, r"llama[-_ ]?4", ("<|python_start|>",)),
        Family("seed-oss", "seed", ReasoningPlace.TEMPLATE, r"seed[-_ ]?oss", ("<seed:tool_call>",)),
        Family("mistral", "mistral", ReasoningPlace.TEMPLATE, _MISTRAL_NAMES, ("[TOOL_CALLS]", "[ARGS]"), digits=9),
        Family("granite-4.2", "qwen-coder", ReasoningPlace.TEMPLATE, r"granite[-_ ]?4\.[2-9]"),
        Family("granite-4", "hermes", ReasoningPlace.NONE, r"granite[-_ ]?4"),
        Family("qwen3.6", "qwen-coder", ReasoningPlace.TEMPLATE, _QWEN_NAMES, keeps="preserve_thinking"),
        Family("qwen3-coder", "qwen-coder", ReasoningPlace.TEMPLATE, _CODER_NAMES),
        Family("qwen3", "qwen", ReasoningPlace.TEMPLATE, r"qwen[-_ ]?3|qwq", (CALL, "<think>")),
        Family("hermes", "hermes", ReasoningPlace.NONE, r"hermes|qwen[-_ ]?2|smollm", (CALL,)),
        Family("server", SERVER, ReasoningPlace.TEMPLATE),
        Family("think", "think", ReasoningPlace.TEMPLATE, marks=("<think>",)),
        Family("plain", "plain", ReasoningPlace.NONE),
    )
}
"""Every family by its name, in the order in which they are tried."""


def family_of(model: str, marks: Collection[str]) -> str:
    """The name of a model's family, by the model's name, or by those of MARKS that are one token of it."""
    for family in FAMILIES.values():
        if family.names and re.search(family.names, model, re.IGNORECASE):
            return family.name
    return next(
        family.name
        for family in FAMILIES.values()
        if family.name == "plain" or (family.marks and all(mark in marks for mark in family.marks))
    )
