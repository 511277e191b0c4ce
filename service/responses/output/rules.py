"""The rules of a request for its answer: which tools may be called, which parts are constrained, which are shown.

Made once with the prompt (prompt/read.py, prompt/build.py), kept in the spec of a background response, and read by the
machine, next_step.py and the emitters. Everything in here is plain data, so that a worker of another day makes the same
response of it.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from service.api.content import head_of
from service.api.items import CALL_NAME
from service.api.outcome import Answers, ToldPicture
from service.api.tools.builtin import CODE_TYPE
from service.api.tools.callee import FUNCTIONS, Callee, Choice
from service.harmony.header import CHANNELS, ROLES
from store.turn import Messages, Picture

_NOBODY = (*ROLES, "all")
"""Recipients that are no tools: the model itself, whom it talks to, and Harmony's name for everybody."""

_SEPARATORS = re.compile(r"[/:]+")
"""The signs that models write at times between a namespace and a name, in the place of a dot."""

_NAMESPACE = re.compile(rf"^(?:(?:{FUNCTIONS}|function|tools?)\.)+")
"""The namespace of a client's functions, also doubled, and what models take for it at times."""


class Spoken:
    """How a model speaks that doesn't speak Harmony, as plain data of the feature that reads it; opaque here."""


class AfterCompaction(msgspec.Struct, frozen=True):
    """How a response goes on behind its own compaction: from a prompt of which the first `prefix_tokens` ids are those
    of the one before, then come the compaction and the `newest` messages. The model's context has `context_tokens`.
    """

    prefix_tokens: int
    newest: Messages
    context_tokens: int


class PictureRoom(msgspec.Struct, frozen=True):
    """The room for pictures of servers' answers in a response: how many, of how many bytes together, and the most bytes
    and pixels of one.
    """

    number: int
    bytes: int
    largest: int
    pixels: int

    def takes(self, told: Sequence[ToldPicture], taken: Sequence[Picture]) -> tuple[ToldPicture, ...]:
        """Those for which there is room beside the ones that were `taken`."""
        number, size = len(taken), sum(len(each.data) for each in taken)
        fit: list[ToldPicture] = []
        for each in told:
            head = head_of(each.data)
            small = len(each.data) <= self.largest and head.width * head.height <= self.pixels
            if small and number < self.number and size + len(each.data) <= self.bytes:
                number, size = number + 1, size + len(each.data)
                fit.append(each)
        return tuple(fit)


class ServerTools(msgspec.Struct, frozen=True):
    """The tools that a server listed for a response, as its item shows them: JSON, as schemas hold numbers that msgpack
    can't.
    """

    server: str
    tools: bytes


class Rules(msgspec.Struct, frozen=True, dict=True):
    """The rules of one response.

    `allowed` are the recipients that may be called, None for all callees'. `parallel` is how many calls it may make.
    `answer` is the format that the final answer must match, as `Callee.content`. `top_logprobs` is how many
    alternatives each token of the answer is shown with; None shows no log probabilities at all. `sealed` asks for
    reasoning's encrypted content, `summary` for reasoning as a summary. `stop` are texts before which the answer ends.
    `harmony` asks for input and output messages beside the items, and for the usage of each stretch. A `compacting`
    response is one compaction item, in which the `kept_messages` travel too; with `after_compaction` it makes that
    first, and then it answers. `listed` are the lists of tools that it shows first, and `hosted_calls` how many calls
    the service runs for it; they don't count among the `parallel` ones. `context_tokens` is the model's context, where
    what tools say may fill it. `include` are those of the request's that concern what calls show which the service
    makes. `answers` are those to requests for approval, with which the response begins.
    `pictures` is the room for those of servers' answers, None for a model that doesn't see.
    `displays` are what tools have displayed in the conversation before, which only they read. `chat` is how a model is
    asked and read that doesn't speak Harmony. `keeps` notes what was sampled for trajectories.

    Queued jobs hold rules: from 0.1.0 on a field that is renamed here keeps its name there (`msgspec.field`).
    """

    callees: tuple[Callee, ...] = ()
    choice: Choice = "auto"
    allowed: frozenset[str] | None = None
    parallel: int = 1
    answer: str | None = None
    top_logprobs: int | None = None
    sealed: bool = False
    summary: str | None = None
    stop: tuple[str, ...] = ()
    harmony: bool = False
    compacting: bool = False
    kept_messages: Messages = ()
    after_compaction: AfterCompaction | None = None
    listed: tuple[ServerTools, ...] = ()
    hosted_calls: int = 0
    context_tokens: int | None = None
    include: frozenset[str] = frozenset()
    answers: Answers | None = None
    displays: tuple[Any, ...] = ()
    chat: Spoken | None = None
    pictures: PictureRoom | None = None
    keeps: bool = False

    @property
    def first(self) -> "Rules":
        """The rules at the beginning: of a response that compacts before it answers, those of the compaction."""
        if self.after_compaction is None:
            return self
        return msgspec.structs.replace(self, choice="none", allowed=None, answer=None, stop=(), compacting=True)

    @property
    def then(self) -> "Rules":
        """The rules once it has compacted."""
        return msgspec.structs.replace(self, kept_messages=(), after_compaction=None)

    @property
    def newest(self) -> Messages:
        """The messages that stand behind a compaction of this response, and travel in it."""
        return self.after_compaction.newest if self.after_compaction is not None else ()

    def after_call(self, calls: int) -> "Rules":
        """The rules once the service has run so many calls: none need follow, and beyond the bound none can."""
        if calls >= self.hosted_calls:
            return msgspec.structs.replace(self, choice="none")
        return msgspec.structs.replace(self, choice="auto") if self.choice == "required" else self

    @property
    def hosts(self) -> bool:
        """Whether the service runs tools for it."""
        return any(callee.hosted is not None for callee in self.callees)

    @cached_property
    def by_recipient(self) -> dict[str, Callee]:
        """The callees by whom a call of them is addressed to."""
        return {callee.recipient: callee for callee in self.callees}

    @cached_property
    def by_name(self) -> dict[str, Callee]:
        """The callees by their bare names, where these are theirs alone."""
        shared = Counter(callee.name for callee in self.callees)
        return {callee.name: callee for callee in self.callees if shared[callee.name] == 1}

    def hosted_callee(self, server: str, tool: str) -> Callee | None:
        """The callee that is a tool of an MCP server which the request declares."""
        meant = ("mcp", server, tool)
        found = (each for each in self.callees if (on := each.hosted) and (on.kind, on.server, on.tool) == meant)
        return next(found, None)

    @cached_property
    def callable(self) -> tuple[Callee, ...]:
        if self.choice == "none":
            return ()
        if self.allowed is None:
            return self.callees
        return tuple(callee for callee in self.callees if callee.recipient in self.allowed)

    def callee_of(self, recipient: str | None, channel: str | None) -> Callee | str | None:
        """Whom a message is addressed to: a callee that may be called, the name of a tool that is undeclared or may not
        be called, or None for nobody.

        Seen in the wild: the namespace missing, doubled or misspelt (`functions/get_weather`), a glued content type
        (`get_weatherjson`), and the name in the channel's place. A bare name in the channel's place counts only if it
        is a callee's.
        """
        misplaced = channel if recipient is None and channel not in CHANNELS else None
        meant = _SEPARATORS.sub(".", recipient or misplaced or "")
        found = self._callee(meant) or self._glued_callee(meant)
        if found is not None:
            return found if found in self.callable else found.recipient
        if recipient is None or meant in _NOBODY or not CALL_NAME.fullmatch(meant):
            return None
        return meant

    def _glued_callee(self, meant: str) -> Callee | None:
        """The callee whose name a content type was glued to: `json`, or `code` where the model was trained with it."""
        if meant.endswith("json"):
            return self._callee(meant.removesuffix("json"))
        found = self._callee(meant.removesuffix(CODE_TYPE)) if meant.endswith(CODE_TYPE) else None
        return found if found is not None and found.trained else None

    def _callee(self, meant: str) -> Callee | None:
        exact = self.by_recipient.get(meant)
        if exact is not None:
            return exact
        bare = _NAMESPACE.sub("", meant)
        return self.by_recipient.get(bare) or self.by_recipient.get(f"{FUNCTIONS}.{bare}") or self.by_name.get(bare)
