"""The engine port: prompt tokens in, sampled tokens out. Adapters live beside this file.

An engine is defined by the conformance suite in tests/support/engine/conformance.py, which runs against every adapter.
An adapter must never decode, parse or repair what it samples: that is the protocol's work.

An engine that has servers may also pass on a request in their own API, such as Chat Completions. We sample and store
nothing then: the server's answer goes to the client. The caller checks the request; the engine only chooses a server,
and sets the tenant's own members.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import msgspec

AUTO, HARMONY = "auto", "harmony"
"""Settings for a model's markup besides the families: the one that its server shows, or Harmony."""


SERVER = "server"
"""The family of a model whose prompts its server makes, and whose turns its server reads, by a parser of its own."""

FAMILY_NAMES = (
    "kimi-k3",
    "kimi-k2",
    "deepseek-v4.1",
    "deepseek-v4",
    "deepseek-v3.2",
    "deepseek-v3.1",
    "deepseek-r1",
    "deepseek-v3",
    "deepseek-r1-distill",
    "glm-4.7",
    "glm",
    "minimax-m3",
    "minimax-m2",
    "gemma-4",
    "llama-4",
    "seed-oss",
    "mistral",
    "granite-4.2",
    "granite-4",
    "qwen3.6",
    "qwen3-coder",
    "qwen3",
    "hermes",
    SERVER,
    "think",
    "plain",
)
"""The families whose markups may be named in settings."""


class MarkupTags(msgspec.Struct, frozen=True):
    """The markup's name, whether it has reasoning and calls, and whether calls can be constrained."""

    markup: str
    reasoning: bool = True
    calls: bool = True
    held_calls: bool = True


class ShownTools(msgspec.Struct, frozen=True):
    """The parts of tools that a chat template shows: the tools, the calls, and their outputs."""

    tools: bool = True
    calls: bool = True
    outputs: bool = True


SHOWN = ShownTools()
"""All parts, as in templates of models that were trained with tools."""


class Speech(msgspec.Struct, frozen=True):
    """How a model speaks that doesn't speak Harmony: by its own chat template, and with the markup of its family.

    `marks` are the marks that are one id in its vocabulary, with their ids, and `ends` the ids that end its turn.
    A conversation without a system message gets an empty one if `empty_system`, as its template would add a worse one.
    `shown` are the parts of tools that its template shows, and `sees` is whether it is shown pictures: by its server's
    prompts, or by prompts of ids, in which `mark` stands for one. With the options `keeps` its template writes the
    reasoning of earlier turns, which it drops without them.
    """

    family: str
    marks: tuple[tuple[str, int], ...] = ()
    ends: tuple[int, ...] = ()
    empty_system: bool = False
    shown: ShownTools = SHOWN
    sees: bool = False
    mark: tuple[int, ...] = ()
    keeps: tuple[tuple[str, bool], ...] = ()


def usual_options(effort: str) -> dict[str, object]:
    """The options of a template about an effort of reasoning; each template takes those that it knows."""
    return {"enable_thinking": effort != "none", "thinking": effort != "none", "reasoning_effort": effort}


class Transcript(msgspec.Struct, frozen=True):
    """The input from which a model's chat template makes a prompt, all of it JSON in the form of Chat Completions:
    messages, tools, and the template's own options. The assistant speaks next. Where `own` stands in a text, in JSON
    too, it stands in one of our marks: nobody else can know it. The template never gets it.
    """

    messages: bytes
    tools: bytes = b"[]"
    options: bytes = b"{}"
    own: str = ""


class ChatRequest(msgspec.Struct, frozen=True):
    """A request to a server that makes its prompts itself, and reads its model by a parser of its own.

    `choice` is whether a tool of the transcript's has to be called (`auto`, `none`, `required`), `parallel` whether
    several may be. `form` is the format of the answer, JSON as Chat Completions has it; empty is any. `pictures` are
    the data URLs of the pictures to which the messages refer, by their digests in hex.
    """

    transcript: Transcript
    choice: str = "auto"
    parallel: bool = True
    form: bytes = b""
    pictures: Mapping[bytes, bytes] = MappingProxyType({})

    @property
    def size(self) -> int:
        """The bytes of its messages and tools: no fewer than their tokens, but for pictures and the template."""
        return len(self.transcript.messages) + len(self.transcript.tools)


class Finish(StrEnum):
    """Why the engine stopped sampling."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


MODEL_CREATED = 1_754_352_000
"""2025-08-05, when gpt-oss came out, in unix seconds."""


class Defaults(msgspec.Struct, frozen=True):
    """The sampling that the model's makers recommend, for parameters that a request leaves out. `top_k` 0 is all."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


class Sampling(msgspec.Struct, frozen=True):
    """How to sample. `max_tokens` counts every sampled id, the stop id included; temperature 0 is greedy.

    `stop_ids` alone end the generation, whatever ids the model's makers meant to end it. None of them is among the
    first `min_tokens` ids; an engine that can't hold to that raises EngineRefused.
    `top_k` 0 considers every token. With `logprobs` each sampled token comes with its log probability and those of
    the so many likeliest. `structural_tag` is a constraint in xgrammar's notation, as JSON; it ends by letting the stop
    ids through, so it must not name them.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: tuple[int, ...] = ()
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logprobs: int | None = None
    structural_tag: str | None = None
    min_tokens: int = 0


class Generation(msgspec.Struct, frozen=True):
    """One request to an engine: an id for its logs, the prompt's token ids, and how to sample.

    `model` is the id of the model that the prompt was made for; empty is the served one. Where the text is wanted
    beside the ids, the generation is `decoded`, and has these `marks` spelled out. `tenant` is the owner, which no
    server is told, and `begun` whether it continues an earlier generation of this process.
    Generations of one `affinity` have long beginnings in common: where there are several servers, they go to the one
    whose prefix cache has them, or to the server of the response that this one `continues`; `response` is its own id.
    Those with different `cache_salt` never share cached prefixes. A lower `priority` is served earlier. `trace` are the
    client's W3C trace headers, by name.
    `pictures` are the data URLs of those that the prompt marks, in its order; empty for one that was deleted since.
    With `asks` the server makes the prompt and reads the answer itself; there is no `prompt` then.
    """

    id: str
    prompt: Sequence[int]
    sampling: Sampling
    model: str = ""
    affinity: str = ""
    cache_salt: str | None = None
    priority: int = 0
    trace: tuple[tuple[str, str], ...] = ()
    response: str = ""
    continues: str = ""
    decoded: bool = False
    marks: tuple[str, ...] = ()
    tenant: str = ""
    begun: bool = False
    asks: ChatRequest | None = None
    pictures: tuple[bytes, ...] = ()


class TokenLogprobs(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The natural log of a sampled token's probability, and (id, log probability) of the likeliest tokens there.

    A token without any probability has LEAST_LOGPROB, as minus infinity is no JSON. Event logs hold it as this array.
    `texts` are those of the sampled token and of the others, where the generation is decoded.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    texts: tuple[str, ...] = ()


LEAST_LOGPROB = -9999.0

UNTOLD = TokenLogprobs(LEAST_LOGPROB, (), ("",))
"""The entry of a token for which the server reported none."""


class Chunk(msgspec.Struct, frozen=True):
    """Some sampled ids in order, as many as were ready. The stop id that ended the generation is among them.

    The last chunk has `finish`; `cached_tokens`, where the engine knows it, is how much of the prompt its prefix
    cache had, and comes at the latest with the last chunk. `logprobs`, where asked for, has one entry a token. `text`
    is the ids' text, where the generation is decoded. Of a generation that `asks`, the ids only count, and the text is
    as markup/by_server.py writes it. Of that, and of one with pictures, `prompt_tokens` come at the latest with the
    last chunk, if the server tells them.
    """

    tokens: list[int]
    finish: Finish | None = None
    cached_tokens: int | None = None
    logprobs: list[TokenLogprobs] | None = None
    text: str = ""
    prompt_tokens: int | None = None

    def cut(self, most: int) -> "Iterator[Chunk]":
        """The same in chunks of at most so many ids. A text that isn't told id by id stays whole, with its ids."""
        texts = [each.texts[0] for each in self.logprobs or () if each.texts] if self.text else []
        if len(self.tokens) <= most or (self.text and (len(texts) < len(self.tokens) or "".join(texts) != self.text)):
            yield self
            return
        for start in range(0, len(self.tokens), most):
            some, prompt = slice(start, start + most), None if start else self.prompt_tokens
            finish = self.finish if some.stop >= len(self.tokens) else None
            known = self.logprobs and self.logprobs[some]
            yield Chunk(self.tokens[some], finish, self.cached_tokens, known, "".join(texts[some]), prompt)


Take = Callable[[Chunk], bool]
"""Takes the next chunk, wherever that has come: it never blocks. False where `Between` is to be awaited before another
one.
"""

Between = Callable[[], Awaitable[bool]]
"""Returns once more chunks may come; False where no more are wanted."""

Sample = Callable[[Generation, Take, Between], Awaitable[None]]


class ModelCard(msgspec.Struct, frozen=True):
    """The model that the engine serves: its id in the API, when it was made (unix seconds) and its context in tokens.

    `max_output_tokens` is the most that one response may have of it; 0 is as many as there is room for.
    `speech` is None for a model that speaks Harmony. `constrains` is whether the engine holds the model to a
    constraint, as far as that is known. `real` is false where no model is behind it.
    """

    id: str
    created: int
    context_tokens: int
    defaults: Defaults = Defaults()
    max_output_tokens: int = 0
    speech: Speech | None = None
    constrains: bool = True
    real: bool = True


class EngineError(Exception):
    """The engine failed while it worked on a request. `status` is the HTTP status that fits, and `model` the id of the
    served model that it was for, where that is known.
    """

    status = 500
    model = ""


class EngineRefused(EngineError):
    """The engine won't do this request as it is; trying again won't help."""

    status = 400


class EngineUnavailable(EngineError):
    """The engine can't be reached or is not ready; trying again later may help."""

    status = 503


class NotServed(EngineUnavailable):
    """This process has no engine for the requested model; another process, with another list, may have one."""


class EngineAway(EngineUnavailable):
    """The engine isn't there, or not ready, as one that loads its model, for so many `seconds` as far as is known."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(f"{message} (for {seconds:,.0f} s now)" if seconds >= 1 else message)
        self.seconds = seconds


class EngineBroke(EngineUnavailable):
    """The engine went away while it may have been at work on the request, which may have broken it."""


class EngineOverloaded(EngineUnavailable):
    """The engine is up but takes no more work now. In so many `seconds` it may, as far as that can be said."""

    def __init__(self, message: str, seconds: int | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Load(msgspec.Struct, frozen=True):
    """How many tokens this process has under way at a server, and for how many it has room; 0 is not known."""

    tokens: int
    room: int


@runtime_checkable
class Loaded(Protocol):
    """An engine that knows its servers' load."""

    @property
    def waiting(self) -> int:
        """How many generations wait for room."""
        ...

    def loads(self) -> Mapping[str, Load]:
        """The load of each server, by the keys of `servers`."""
        ...


@runtime_checkable
class Released(Protocol):
    """An engine that knows its servers' releases."""

    def releases(self) -> Mapping[str, str]:
        """The advice to the operator on each release that is up, as `vLLM 0.32.0`; empty where none is to be given."""
        ...


@runtime_checkable
class Renderer(Protocol):
    """An engine that knows its model's chat template."""

    async def render(self, transcript: Transcript, model: str) -> Sequence[int]:
        """The ids of a prompt; no text of a message becomes a mark. Raises EngineError."""
        ...


class Engine(Protocol):
    """The port through which a run uses an engine."""

    @property
    def model(self) -> ModelCard:
        """The model behind this engine. Raises EngineUnavailable until a server has said which."""
        ...

    async def start(self) -> None:
        """Make the engine ready, or begin to wait for its server; `check` says when it is. Raises EngineUnavailable."""
        ...

    async def check(self) -> None:
        """Return if the engine can serve now, or raise EngineUnavailable with the reason. `/ready` asks it."""
        ...

    def servers(self) -> Mapping[str, bool]:
        """Each sampling server by its name, and whether it was up when last heard of. Asks no server."""
        ...

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        """Sample until a stop id, `max_tokens`, or no more is wanted, and have each chunk taken as it comes. A task
        that is cancelled aborts at once.

        The last chunk has a finish. An engine that returns without one has failed, unless `between` said that no more
        is wanted. The token that may be the last is taken once it is certain that the tokens are an answer: logs keep
        them, and not a failure behind them. Raises EngineError.
        """
        ...

    async def finish(self, id: str) -> bool:
        """Have a generation end soon, for its last chunk, which has the finish ABORT: some engines say with it alone
        how much of the prompt was cached. False where no such chunk will come, or there is none of this id.
        """
        ...

    async def close(self) -> None:
        """Abort what is running and let go of all resources."""
        ...


# --- servers that are asked in their own API ---


class FormFile(msgspec.Struct, frozen=True):
    name: str
    kind: str
    content: bytes


class Passed(msgspec.Struct, frozen=True):
    """A request for a server: its path, and the members of its body but for the model, as each server has its own id
    for that.

    One without a `cache_salt` has no priority either, as its endpoint knows neither. `answers` is how many generations
    it is, `stream` whether they are to be a stream. `model`, `affinity`, `cache_salt`, `priority`, `trace` and `tenant`
    are as those of a generation.
    """

    id: str
    path: str
    members: Mapping[str, msgspec.Raw]
    answers: int = 1
    stream: bool = False
    model: str = ""
    affinity: str = ""
    cache_salt: str = ""
    priority: int = 0
    trace: tuple[tuple[str, str], ...] = ()
    tenant: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """The headers of the request that are for the server too."""
    file: FormFile | None = None
    """The file beside the members, where these are the fields of a form."""


class PassedRefusal(EngineRefused):
    """The server refused it, with this status and in these words, which its sender may see."""

    def __init__(self, message: str, status: int, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class PassedUsage(msgspec.Struct, frozen=True):
    """The usage that an answer reports; `cached_tokens` are among those of the prompt."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int


class PassedReply(Protocol):
    """A server's answer with status 200."""

    @property
    def events(self) -> bool:
        """Whether it is a stream of server-sent events; else it is whole."""
        ...

    @property
    def content_type(self) -> str:
        """The type of an answer that is whole: JSON, or of one to a form any text."""
        ...

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The bytes as they come, of a stream whole events, [DONE] the last of them. Raises EngineError where the
        server says that it failed, or goes away first.
        """
        ...

    @property
    def usage(self) -> PassedUsage | None:
        """The usage that it has reported so far."""
        ...

    async def end(self) -> None:
        """Waits a moment for the end of a stream that has said all: its connection can be used again then."""
        ...


@runtime_checkable
class PassesOn(Protocol):
    """An engine that has servers."""

    def pass_on(self, passed: Passed) -> AbstractAsyncContextManager[PassedReply]:
        """Ask a server. Leaving early ends its work. Raises EngineError: a PassedRefusal is the server's own."""
        ...
