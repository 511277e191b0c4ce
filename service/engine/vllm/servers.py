"""The kind of servers that vLLM's are, and their wire: requests to JSON, answers, and our errors for theirs.

Two endpoints take token ids and give token ids. `/inference/v1/generate` is made for it and does no more; servers
without it (it wants --enable-scale-out) have `/v1/completions`, where ids are an extra beside the text. As measured
on vLLM 0.32; older ones have the first, too, and can't end a generation there. A key that a server doesn't know is
ignored in silence, so tests check each on a real one.
"""

import asyncio
import re
from collections.abc import Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from service.engine.port import (
    LEAST_LOGPROB,
    Defaults,
    EngineError,
    EngineUnavailable,
    Generation,
    Passed,
    Sampling,
    Speech,
    TokenLogprobs,
    Transcript,
)
from service.engine.servers import token_ids
from service.engine.servers.answer import Answer
from service.engine.servers.kind import (
    UNREADABLE,
    Ask,
    Pieces,
    Request,
    ServerFacts,
    ServerKind,
    ServerLoad,
    Speeches,
    TokenId,
    Wanted,
    decode,
    read_event,
)
from service.engine.servers.token_ids import BAN, MOST, UsageEvent, mean, prompt_json, read_page, total
from service.engine.vllm.pictures import LOOK_TWICE, RENDER, content_parts, in_grey, read_rendered, shows_pictures
from service.harmony.tokens import START

NAME = "vLLM"

MOST_LOGPROBS = 20
"""The most that vLLM allows, unless its --max-logprobs says otherwise; with so many the last one may be missing."""

TOKEN_ID = "token_id:"
"""The prefix of an id where `/v1/completions` would write a token's text."""


TOKENIZE = "/tokenize"
"""Where a server tells how it cuts a text, or what its chat template makes of messages."""


class TokensEndpoint(StrEnum):
    """Where a server takes token ids, the better one first."""

    GENERATE = "/inference/v1/generate"
    COMPLETIONS = "/v1/completions"


CHAT = "/v1/chat/completions"
VERSION = "/version"


class Release(NamedTuple):
    """The release of a version: its first two numbers, and all of it, as `0.33.0rc1.dev5+g12ab`; and whether vLLM's
    frontend in Rust speaks, which can't end generations and gives no texts beside ids, either.
    """

    major: int
    minor: int
    version: str = ""
    rust: bool = False

    @property
    def whole(self) -> bool:
        """Whether its Endpoint.GENERATE ends generations, and gives a text beside the ids."""
        return self >= WHOLE and not self.rust

    @property
    def holds(self) -> bool:
        """Whether it holds gpt-oss to a constraint."""
        return self >= (HOLDING_IN_RUST if self.rust else HOLDING)


WHOLE = (0, 32)
"""The first release whose Endpoint.GENERATE does all that is needed."""

HOLDING, HOLDING_IN_RUST = (0, 27), (0, 33)
"""The first that holds gpt-oss to a constraint from the first token on, and not behind `final` alone; and the first
whose frontend in Rust doesn't fail at structural tags.
"""

OLDEST = (0, 10)
"""The first that takes ids and gives ids. A lower number is none of a release: builds without tags are 0.1.dev, and
some routers tell a version of their own.
"""

UNTOLD = Release(1 << 31, 0)
"""The release of a server that tells none: it counts as the newest."""

_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})[\w.+-]{0,60}", re.ASCII)

ABORT = "/inference/v1/abort_requests"
"""Beside Endpoint.GENERATE; `/v1/completions` can only be hung up on."""

GENERATE_PREFIX = "generate-tokens-"
"""The prefix that Endpoint.GENERATE gives an id. The server ignores an abort of an id without it, in silence."""


class _Version(msgspec.Struct):
    version: str
    rust_frontend_version: str | None = None


class _TopLogprob(msgspec.Struct):
    logprob: float
    token_id: TokenId | None = None
    """Left out where the text is asked for, too."""
    token: str = ""


class _TokenLogprob(msgspec.Struct):
    logprob: float
    token: str = ""
    top_logprobs: list[_TopLogprob] = []


class _Logprobs(msgspec.Struct):
    """`content` is the shape of `/inference/v1/generate`, the other two are that of `/v1/completions`."""

    content: list[_TokenLogprob] = []
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class CutText(msgspec.Struct):
    """The ids of a text, and what each stands for."""

    tokens: list[TokenId]
    token_strs: list[str] | None = None


class _Choice(msgspec.Struct):
    token_ids: list[TokenId] | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class VllmEvent(UsageEvent):
    choices: list[_Choice] = []


class _Rendered(msgspec.Struct):
    sampling_params: Defaults


class _Written(msgspec.Struct):
    """A prompt as its template writes it."""

    prompt_text: str = ""


METRICS = "/metrics"
RUNNING, WAITING, CONFIG = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:cache_config_info"
USED = "vllm:kv_cache_usage_perc"

EVENT = msgspec.json.Decoder(VllmEvent)
_VERSION = msgspec.json.Decoder(_Version)
_CUT = msgspec.json.Decoder(CutText)
_RENDERED = msgspec.json.Decoder(list[_Rendered])
_WRITTEN = msgspec.json.Decoder(_Written)
_ENCODE = msgspec.json.Encoder().encode
_LOGPROB = attrgetter("logprob")


def request_body(endpoint: TokensEndpoint, generation: Generation, model: str, mark: Sequence[int] = ()) -> bytes:
    """The body that asks for a generation; `mark` stands for a picture in its prompt."""
    prompt, sampling = prompt_json(generation), parameters(generation.sampling)
    if generation.sampling.structural_tag is not None:
        sampling["structured_outputs"] = {"structural_tag": generation.sampling.structural_tag}
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_salt": generation.cache_salt,
        "priority": generation.priority,
    }
    if endpoint is TokensEndpoint.GENERATE:
        if generation.sampling.logprobs:
            asked = generation.sampling.logprobs  # the sampled token is counted among them
            sampling["logprobs"] = max(asked, min(asked + 1, MOST_LOGPROBS))
        # without need of the text none is made; a constraint holds from the first token, whatever parser a server has
        text = {"skip_special_tokens": False} if generation.decoded else {"detokenize": False}
        mode: dict[str, Any] = {"output_mode": "text"} if generation.decoded else {}
        if generation.pictures:
            mode |= {"content_parts": content_parts(generation.pictures)}
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if len(mark) == 1:  # a sampled one would take the place of a later picture's
            sampling["logit_bias"] = {str(mark[0]): BAN}
        return _ENCODE(body | mode | {"token_ids": prompt, "sampling_params": sampling | text, "reasoning_ended": True})
    as_ids = not generation.decoded
    ids = {"return_token_ids": True, "return_tokens_as_token_ids": as_ids, "skip_special_tokens": False}
    return _ENCODE(body | sampling | ids | {"prompt": prompt})


def tokenize_body(text: str, model: str) -> bytes:
    """The body that asks for the ids of a text in which marks are marks."""
    return _ENCODE({"model": model, "prompt": text, "add_special_tokens": False, "return_token_strs": True})


def template_body(transcript: Transcript, model: str, *, texts: bool = False, **more: Any) -> bytes:
    """The body that asks for the ids of a prompt, with `texts` for their texts, too; `more` are further members."""
    tools = {} if transcript.tools == b"[]" else {"tools": msgspec.Raw(transcript.tools)}
    body = {
        "model": model,
        "messages": msgspec.Raw(transcript.messages),
        "chat_template_kwargs": msgspec.Raw(transcript.options),
        "add_generation_prompt": True,
        "add_special_tokens": False,
        **({"return_token_strs": True} if texts else {}),
        **more,
    }
    return _ENCODE(body | tools)


def read_cut(body: bytes) -> CutText:
    return decode(_CUT, body, EngineError("the vLLM server sent something other than ids"))


def parameters(sampling: Sampling) -> dict[str, Any]:
    """The parameters that both endpoints, and vLLM as a library, call by the same names, without the constraint."""
    asked = {
        **token_ids.parameters(sampling),
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": True,  # the model's own stop tokens don't count, only those that were asked for
    }
    if sampling.min_tokens:
        asked["min_tokens"] = sampling.min_tokens
    if sampling.seed is not None:
        asked["seed"] = sampling.seed
    if sampling.logprobs is not None:
        asked["logprobs"] = sampling.logprobs
    return asked


def read_logprobs(choice: _Choice, most: int, *, decoded: bool = False) -> list[TokenLogprobs]:
    """The log probabilities of a choice's tokens, in either endpoint's shape: one a token, or it raises EngineError.

    Each has the `most` likeliest; a server adds the sampled one where it isn't among them. `decoded` ones have the
    tokens' texts, and no ids.
    """
    given = choice.logprobs or _Logprobs()
    count = len(given.token_logprobs)
    try:
        entries = given.content or [
            _TokenLogprob(
                LEAST_LOGPROB if logprob is None else logprob,
                token,
                [_TopLogprob(each, token=text) for text, each in (top or {}).items()],
            )
            for token, logprob, top in zip(
                given.tokens or [""] * count, given.token_logprobs, given.top_logprobs or [None] * count, strict=True
            )
        ]
        read = [_logprobs(each, most, decoded) for each in entries]
    except ValueError as error:
        raise EngineError("the vLLM server sent invalid log probabilities") from error
    if len(read) != len(choice.token_ids or ()):
        raise EngineError("the vLLM server sent tokens without their log probabilities")
    return read


def _logprobs(given: _TokenLogprob, most: int, decoded: bool) -> TokenLogprobs:
    """One token's. Raises ValueError where an alternative has no id, and needs one."""
    top = sorted(given.top_logprobs, key=_LOGPROB, reverse=True)[:most]
    texts = (given.token, *(each.token for each in top)) if decoded else ()
    return TokenLogprobs(given.logprob, tuple([(0 if decoded else _id_of(each), each.logprob) for each in top]), texts)


def _id_of(top: _TopLogprob) -> int:
    return int(top.token.removeprefix(TOKEN_ID)) if top.token_id is None else top.token_id


def read_defaults(body: bytes) -> Defaults:
    """The sampling parameters that a server filled in for a request that named none."""
    try:
        return _RENDERED.decode(body)[0].sampling_params
    except (*UNREADABLE, IndexError) as error:
        raise EngineUnavailable("the vLLM server does not report its sampling defaults") from error


def read_release(body: bytes) -> Release:
    """The release that a server tells; UNTOLD where that is none of vLLM's."""
    try:
        told = _VERSION.decode(body)
    except UNREADABLE:
        return UNTOLD
    found = _RELEASE.fullmatch(told.version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        return UNTOLD
    return Release(int(found[1]), int(found[2]), told.version, told.rust_frontend_version is not None)


def advice_on(release: Release, *, harmony: bool) -> str:
    """The advice to the operator of a server of a release; empty where there is none to be given."""
    if release.whole:
        return ""
    lacks = "generations can't be aborted here and go by /v1/completions"
    if harmony and not release.holds:
        lacks += f", and formats and a call's arguments {'fail' if release.rust else 'are held only behind `final`'}"
    remedy = "leave out VLLM_USE_RUST_FRONTEND" if release >= WHOLE else f"use {WHOLE[0]}.{WHOLE[1]} or newer"
    return f"vLLM {release.version}{' with its frontend in Rust' if release.rust else ''}: {lacks}; {remedy}"


def read_told(body: bytes) -> ServerLoad:
    """The server's load on a page of metrics. Each engine in it has a sample of its own.

    Its room is `kv_cache_size_tokens` of each, which takes into account that layers with a sliding window keep less;
    where an older server doesn't say that, all blocks, a number that every sample repeats (vLLM 0.32, config/cache.py).
    """
    page = read_page(body, (RUNNING, WAITING, USED, CONFIG))
    room = sum(each.label("kv_cache_size_tokens") for each in page[CONFIG])
    blocks = max((each.label("num_gpu_blocks") * each.label("block_size") for each in page[CONFIG]), default=0)
    return ServerLoad(total(page[RUNNING]), total(page[WAITING]), min(mean(page[USED]), 1.0), min(room or blocks, MOST))


class VllmAnswer(Answer):
    """A stream of either endpoint; `pictured` is whether the prompt has more ids than are known here."""

    name = NAME
    hint = "; vLLM does so before 0.32"

    def __init__(self, *, logprobs: int | None, decoded: bool = False, pictured: bool = False) -> None:
        super().__init__(logprobs=logprobs, decoded=decoded)
        self._pictured = pictured

    def _take(self, payload: bytes) -> None:
        event = read_event(NAME, EVENT, payload)
        if event.cached_tokens is not None:
            self._cached_tokens = event.cached_tokens
        if self._pictured and event.prompt_tokens is not None:
            self._read_tokens, self._pictured = event.prompt_tokens, False
        if self.finished:
            return
        for choice in event.choices:
            if self._alternatives is not None:
                self._logprobs += read_logprobs(choice, self._alternatives, decoded=self._decoded)
            if self._decoded and choice.text is not None:
                self._text.append(choice.text)
            elif self._decoded and choice.token_ids:
                raise self._without_text()
            if choice.token_ids:
                self._tokens += choice.token_ids
            if choice.finish_reason is not None:
                self._finish_as(choice.finish_reason)


HARMONY_START = "<|start|>"
"""A mark that only the vocabulary of gpt-oss has as the id START."""


class Vllm(ServerKind):
    """vLLM's servers, and routers before some."""

    name = NAME

    def __init__(self, speeches: Speeches | None = None) -> None:
        self._speeches = speeches or Speeches()

    async def facts(self, ask: Ask, wanted: Wanted) -> ServerFacts:
        """The facts. Where a router doesn't say how texts are cut, the model is taken for gpt-oss."""
        status, body = await ask("GET", VERSION, None)
        release = read_release(body) if status == 200 else UNTOLD
        endpoint = await self._endpoint(ask) if release.whole else TokensEndpoint.COMPLETIONS
        defaults = Defaults()
        if endpoint is TokensEndpoint.GENERATE:  # its parameters, as it fills them in for a request without any
            status, body = await ask("POST", "/v1/completions/render", b'{"prompt": [0]}')
            defaults = read_defaults(body) if status == 200 else defaults
        model, context_tokens, _ = await self.served_model(ask, wanted)
        speech = await self._speech(ask, model)
        if speech is not None and endpoint is TokensEndpoint.GENERATE:
            mark = await self._mark(ask, model)
            speech = msgspec.structs.replace(speech, sees=bool(mark), mark=mark)
        if model != (again := (await self.served_model(ask, wanted)).model):
            raise EngineUnavailable(f"the vLLM server served {model!r} a moment ago, and now {again!r}")
        return ServerFacts(
            endpoint,
            model,
            context_tokens,
            defaults,
            speech=speech,
            constrains=release.holds or (speech is not None and not release.rust),
            version=release.version,
            advice=advice_on(release, harmony=speech is None),
        )

    async def render(self, ask: Ask, facts: ServerFacts, transcript: Transcript) -> list[int]:
        sees = facts.speech is not None and facts.speech.sees
        disarmed = await self._speeches.disarm(self.pieces(ask, facts.model), transcript, sees=sees)
        if facts.speech is not None and facts.speech.mark and shows_pictures(disarmed):
            disarmed = in_grey(disarmed)
            asked = template_body(disarmed, facts.model, mm_payload="none", tool_choice="none")
            status, body = await ask("POST", RENDER, asked)
            if status == 200:
                return read_rendered(body).with_mark(facts.speech.mark)
            ids = await self._ids_of(ask, facts, disarmed)
            if len(ids) < facts.context_tokens:  # a prompt that is too long is refused, and here made shorter
                raise self.refusal(status, body)
            return ids
        return await self._ids_of(ask, facts, disarmed)

    async def _ids_of(self, ask: Ask, facts: ServerFacts, transcript: Transcript) -> list[int]:
        return read_cut(await self.ask_body(ask, TOKENIZE, template_body(transcript, facts.model))).tokens

    async def load(self, ask: Ask) -> ServerLoad:
        status, body = await ask("GET", METRICS, None)
        return await asyncio.to_thread(read_told, body) if status == 200 else ServerLoad()

    def request(self, facts: ServerFacts, generation: Generation) -> Request:
        endpoint = TokensEndpoint(facts.endpoint)
        abort = Request(ABORT, _ENCODE({"request_ids": [GENERATE_PREFIX + generation.id]}))
        end = abort if endpoint is TokensEndpoint.GENERATE else None
        mark = facts.speech.mark if facts.speech is not None else ()
        return Request(endpoint, request_body(endpoint, generation, facts.model, mark), end)

    def answer(self, generation: Generation) -> VllmAnswer:
        logprobs, pictured = generation.sampling.logprobs, bool(generation.pictures)
        return VllmAnswer(logprobs=logprobs, decoded=generation.decoded, pictured=pictured)

    def passed_members(self, passed: Passed) -> dict[str, Any]:
        return {"cache_salt": passed.cache_salt, "priority": passed.priority} if passed.cache_salt else {}

    def pieces(self, ask: Ask, model: str) -> Pieces:
        async def pieces(text: str) -> Sequence[tuple[int, str]]:
            cut = read_cut(await self.ask_body(ask, TOKENIZE, tokenize_body(text, model)))
            return list(zip(cut.tokens, cut.token_strs or (), strict=False))

        return pieces

    async def _speech(self, ask: Ask, model: str) -> Speech | None:
        status, body = await ask("POST", TOKENIZE, tokenize_body(HARMONY_START, model))
        if status in (403, 404, 405):
            return None
        if status != 200:
            raise self.refusal(status, body)
        if read_cut(body).tokens == [START]:
            return None

        async def template_text(transcript: Transcript) -> str | None:
            body = template_body(transcript, model, texts=True)
            texts = read_cut(await self.ask_body(ask, TOKENIZE, body)).token_strs
            return None if texts is None else "".join(texts)

        return await self._speeches.speech_of(self.pieces(ask, model), template_text, model)

    async def _mark(self, ask: Ask, model: str) -> tuple[int, ...]:
        """The ids with which the template marks a picture; none where the model sees none, or only one at a time. The
        template's text is told beside an answer alone, so one of one token is asked for.
        """
        asked = {"model": model, "messages": LOOK_TWICE}
        status, rendered = await ask("POST", RENDER, _ENCODE(asked | {"mm_payload": "none"}))
        if status != 200:
            return ()
        status, body = await ask("POST", CHAT, _ENCODE(asked | {"max_tokens": 1, "return_prompt_text": True}))
        if status != 200:
            return ()
        text = decode(_WRITTEN, body, EngineError("the vLLM server sent something other than an answer")).prompt_text
        template = read_cut(await self.ask_body(ask, TOKENIZE, tokenize_body(text, model))).tokens
        return read_rendered(rendered).mark(template)

    async def _endpoint(self, ask: Ask) -> TokensEndpoint:
        """The better endpoint that it has. A request without a prompt is 400 where it is, and 403 or 404 else."""
        status, body = await ask("POST", TokensEndpoint.GENERATE, b"{}")
        if status in (400, 422):
            return TokensEndpoint.GENERATE
        if status in (403, 404, 405):
            return TokensEndpoint.COMPLETIONS
        raise self.refusal(status, body)
