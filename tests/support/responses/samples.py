"""What models sample, well-formed and not, as hypothesis strategies over token ids; and the machine run over it.

`generations` are well-formed to the letter, in both orders of a header that exist, and end with their calls.
`rambling` ones go on behind those, and call tools that aren't there. `wild` are shreds of Harmony in any order, ids
that don't exist among them. `mutated` are well-formed ones with a few tokens added, lost or moved, which is what real
malformed output looks like.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

from service.api.citing import Cite, cite_nothing
from service.api.events import Event
from service.api.response import Response, ResponseError, ResponseStatus
from service.api.tools.callee import Callee
from service.engine.port import TokenLogprobs
from service.harmony import tokens
from service.harmony.tokens import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, encode
from service.responses.output.machine import Ending, Machine
from service.responses.output.phases import Phase
from service.responses.output.rules import Rules

RESPONSE_ID = f"resp_{'0123456789ab' * 4}"
FUNCTIONS = frozenset({"get_weather", "lookup"})
RULES = Rules(
    callees=(
        *(Callee(name) for name in sorted(FUNCTIONS)),
        Callee("find", namespace="crm"),
        Callee("note", "custom", wrapped=True),
        Callee("patch", "custom"),
    ),
    parallel=100,
)
OPENING = [START, tokens.ASSISTANT]
NOW = 1_700_000_000
ANSWER = "<|channel|>final<|message|>42<|return|>"
PROMPT_TOKENS = 100
_BYTE_TOKENS = {piece: token for token, piece in enumerate(tokens.vocabulary()) if len(piece) == 1}

MARKS = {
    "<|return|>": RETURN,
    "<|constrain|>": CONSTRAIN,
    "<|channel|>": CHANNEL,
    "<|start|>": START,
    "<|end|>": END,
    "<|message|>": MESSAGE,
    "<|call|>": CALL,
    "<|endoftext|>": 199999,
}


def harmony(text: str) -> list[int]:
    """The ids of a text in which Harmony's marks are written out."""
    ids: list[int] = []
    for piece in text.replace("<|", "\0<|").replace("|>", "|>\0").split("\0"):
        ids += [MARKS[piece]] if piece in MARKS else encode(piece)
    return ids


def byte_token(byte: int) -> int:
    """The id whose text is one byte."""
    return _BYTE_TOKENS[bytes([byte])]


def byte_by_byte(text: str) -> list[int]:
    """Ids of one byte each, so that every character beyond ASCII is split."""
    return [byte_token(byte) for byte in text.encode()]


# --- well-formed ---


@dataclass(frozen=True)
class Sampled:
    """A message as a model samples it. `recipient_first` is openai-harmony's order; gpt-oss has the channel first."""

    channel: str
    content: tuple[int, ...]
    recipient: str | None = None
    content_type: str | None = None
    recipient_first: bool = False

    def ids(self) -> list[int]:
        """All of its ids from START to the closing mark."""
        recipient = [] if self.recipient is None else encode(f" to={self.recipient}")
        channel = [CHANNEL, *encode(self.channel)]
        header = [*recipient, *channel] if self.recipient_first else [*channel, *recipient]
        return [*OPENING, *header, *self._type(), MESSAGE, *self.content, CALL if self.recipient else END]

    def _type(self) -> list[int]:
        if self.content_type is None or not self.content_type.startswith("<|constrain|>"):
            return encode(f" {self.content_type}") if self.content_type else []
        return [*encode(" "), CONSTRAIN, *encode(self.content_type.removeprefix("<|constrain|>"))]


def generation(messages: Sequence[Sampled]) -> list[int]:
    """What the engine samples: the prompt has the first two ids, and a final answer ends with RETURN."""
    ids = list(chain.from_iterable(message.ids() for message in messages))[len(OPENING) :]
    return [*ids[:-1], RETURN if ids[-1] == END else CALL]


words = st.sampled_from(
    ["Hello", "\n", '{"city":"Oslo"}', "👩‍🚀", "中文", "𒀀", "é", "to=", "json", "assistant", "final", " " * 9]
)
texts = st.lists(words | st.characters(exclude_categories=["Cs"]), max_size=5).map("".join)
contents = st.one_of(texts.map(encode), texts.map(byte_by_byte)).map(tuple)
recipients = st.sampled_from([callee.recipient for callee in RULES.callees])
strangers = st.sampled_from(["functions.undeclared", "python", "browser.open", "container.exec", "mcp.docs.look.up"])
"""Tools that aren't there."""
content_types = st.none() | st.sampled_from(["<|constrain|>json", "json"])

thoughts = st.builds(Sampled, st.just("analysis"), contents)
preambles = st.builds(Sampled, st.just("commentary"), contents)
answers = st.builds(Sampled, st.just("final"), contents)
calls = st.builds(Sampled, st.just("commentary"), contents, recipients, content_types, st.booleans())
foreign = st.builds(Sampled, st.sampled_from(["analysis", "commentary"]), contents, strangers, content_types)
said = st.lists(thoughts | preambles | answers, max_size=4)
conversations = st.tuples(said, st.lists(calls, max_size=3)).map(lambda parts: [*parts[0], *parts[1]]).filter(bool)
generations = conversations.map(generation)
messages = thoughts | preambles | answers | calls | foreign
rambling = st.lists(messages, min_size=1, max_size=6).map(generation)

# --- malformed ---

FRAGMENTS: list[list[int]] = [
    *([mark] for mark in MARKS.values()),
    *([200013], [tokens.LAST_LEGAL], [tokens.LAST_LEGAL + 1], [2**31], [-1]),
    *map(byte_by_byte, "🙂é"),
    byte_by_byte("🙂")[:2],
    *map(
        harmony,
        [
            "<|channel|>analysis<|message|>",
            "<|channel|>final<|message|>",
            "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
            '<|channel|>commentary to=functions.note <|constrain|>json<|message|>{"input":"',
            "<|channel|>analysis to=python code<|message|>",
            "<|channel|>analysis to=browser.open<|message|>",
            " to=functions.lookup<|channel|>commentary json<|message|>",
            "<|channel|>commentary<|constrain|>json<|message|>",
            "<|end|><|start|>assistant",
            "<|channel|>functions.lookup<|message|>",
            "assistantanalysis",
            " to=",
            "functions.functions.lookup",
            "get_weatherjson",
            "commentary",
            " some words",
            '{"a": 1}',
            " ",
        ],
    ),
]

any_id = st.integers(0, tokens.LAST_LEGAL).map(lambda token: [token])
wild = st.lists(st.sampled_from(FRAGMENTS) | any_id, max_size=25).map(lambda parts: [*chain.from_iterable(parts)])


@st.composite
def _mutated(draw: st.DrawFn) -> list[int]:
    ids = draw(generations | rambling)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(ids)))
        change = draw(st.sampled_from(["lose", "add", "double", "cut"]))
        if change == "lose":
            del ids[place : place + 1]
        elif change == "add":
            ids[place:place] = draw(st.sampled_from(FRAGMENTS))
        elif change == "double":
            ids[place:place] = ids[place : place + 3]
        else:
            del ids[place:]
    return ids


mutated = _mutated()
streams = wild | mutated | generations | rambling
cuts = st.lists(st.integers(0, 60), max_size=5)


def split(ids: Sequence[int], places: Sequence[int]) -> list[Sequence[int]]:
    """The ids in chunks that end at `places`."""
    bounds = sorted({0, len(ids), *(place for place in places if place < len(ids))})
    return [ids[start:end] for start, end in pairwise(bounds)]


# --- the machine over it ---


def created() -> Response:
    return Response(
        id=RESPONSE_ID,
        created_at=NOW,
        status=ResponseStatus.IN_PROGRESS,
        model="gpt-oss-demo",
        instructions=None,
        previous_response_id=None,
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        max_output_tokens=None,
        max_tool_calls=None,
        temperature=1.0,
        top_p=1.0,
        reasoning={"effort": "medium", "summary": None},
        text={"format": {"type": "text"}, "verbosity": "medium"},
        metadata={},
        store=True,
        safety_identifier=None,
        prompt_cache_key=None,
    )


all_rules = st.builds(
    lambda sealed, summary, parallel, compacting: msgspec.structs.replace(
        RULES, sealed=sealed, summary=summary, parallel=parallel, compacting=compacting
    ),
    st.booleans(),
    st.none() | st.just("auto"),
    st.sampled_from([1, RULES.parallel]),
    st.sampled_from([False, False, True]),
)
"""Rules that change what is shown."""


def sealed(kind: str, payload: bytes) -> str:
    """A seal that anybody can look through."""
    return f"{kind}:{payload.hex()}"


def machine(rules: Rules = RULES, cite: Cite = cite_nothing) -> Machine:
    """A machine for a response that may call FUNCTIONS, and some other tools."""
    return Machine(created(), rules, PROMPT_TOKENS, sealed, cite)


def fed(machine: Machine, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None = None) -> list[Event]:
    """The events of some sampled ids; where the model has to get feedback in between, it does."""
    out: list[Event] = []
    before = machine.stretches.sampled
    while (place := machine.stretches.sampled - before) < len(ids):
        out += machine.feed(ids[place:], None if logprobs is None else logprobs[place:])
        if machine.phase is Phase.FEEDBACK:
            machine.give_feedback()
    return out


def run(
    machine: Machine, chunks: Sequence[Sequence[int]], ending: Ending = Ending.STOP, *, background: bool = False
) -> list[Event]:
    """Every event of the response that samples `chunks` and ends so; in the background, it waits before."""
    events = machine.queue() + machine.start() if background else machine.begin()
    for chunk in chunks:
        events += fed(machine, chunk)
    events += machine.end(ending)
    error = ResponseError("server_error", "it broke") if ending in (Ending.ERROR, Ending.TIMEOUT) else None
    return events + machine.terminal(machine.result(ending, now=NOW, error=error))


def as_json(event: Any) -> Any:
    """An event or a response as a client decodes it."""
    return msgspec.json.decode(msgspec.json.encode(event))


def sampled(text: str, ending: Ending = Ending.STOP, rules: Rules = RULES) -> Machine:
    """The machine after a generation in Harmony's notation that ended so."""
    fed = machine(rules)
    run(fed, [harmony(text)], ending)
    return fed
