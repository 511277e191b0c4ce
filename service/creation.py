"""One create request from its body to a run, and its turn to the store. Knows no HTTP.

    check ─▶ chain, pinned ─▶ prompt ─┬▶ run ─▶ append, unpinned
                                      └▶ spec, for whoever queues it

The pin keeps the parent's history for this run even if somebody deletes the parent meanwhile. Whatever fails between
the chain and the end lets go of it.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from time import time
from typing import TypeVar

import msgspec

from service import logs
from service.engine.port import Engine, EngineUnavailable, Generation, ModelCard, Sampling
from service.errors import store_refusal
from service.metrics import Metrics
from service.protocol import tokens
from service.protocol.errors import ApiError
from service.protocol.input import identify
from service.protocol.machine import Machine
from service.protocol.prompt import Identity, Limits, Prompt, build_prompt
from service.protocol.response import Response, ResponseStatus
from service.protocol.tools import Tools
from service.protocol.wire import CreateRequest
from service.run import Run
from service.settings import Settings
from service.spec import JobSpec
from store.errors import StoreError
from store.history import ConversationHistoryStore
from store.jobs import Jobs
from store.listening import Listening
from store.log import EventLog
from store.turn import Chain, Status, Turn

logger = logging.getLogger(__name__)
T = TypeVar("T")

SALTS_CACHED = 1024

BRIEFLY = 1e-6
"""Seconds."""

_JSON = msgspec.json.Encoder()

READ = msgspec.Raw(b"null")
"""Stands for JSON that was read: a run may take minutes, and needn't hold on to megabytes meanwhile."""


class Service(msgspec.Struct, frozen=True):
    """What every request needs: the settings, the store with its jobs, the engine, and the limits of a prompt."""

    settings: Settings
    store: ConversationHistoryStore
    jobs: Jobs
    log: EventLog
    listening: Listening
    engine: Engine
    limits: Limits
    metrics: Metrics
    closings: asyncio.Semaphore
    """How many cancelled responses may be closed at once, each of which replays its log."""
    clock: Callable[[], float] = time


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a request is made: the tenant, and the W3C trace headers that came with it."""

    tenant: str
    trace: tuple[tuple[str, str], ...] = ()


class Creation:
    """A checked request with its prompt, ready to run."""

    def __init__(
        self, service: Service, caller: Caller, request: CreateRequest, model: ModelCard, chain: Chain
    ) -> None:
        self._service = service
        self._caller = caller
        self._model = model
        self._chain = chain
        self._pinned = chain.pin is not None
        self.request = request
        self._temperature = model.defaults.temperature if request.temperature is None else request.temperature
        self._top_p = model.defaults.top_p if request.top_p is None else request.top_p
        self.id = service.store.new_id(chain.tip)
        self.created_at = service.clock()

    @property
    def parent(self) -> str | None:
        """The id of the response that this one continues."""
        return self._chain.tip

    @property
    def pin(self) -> str | None:
        """What holds the parent until `release`."""
        return self._chain.pin if self._pinned else None

    async def build(self) -> Run:
        """Build the prompt and the run, which lets go of the pin. Raises ApiError; the pin is then gone."""
        prompt, generation = await self._rendered()
        machine = Machine(self._base(prompt.tools), prompt.tools.names, len(prompt.tokens))

        async def keep(response: Response) -> None:
            await self._keep(prompt, machine, response)

        return Run(
            self._service.engine,
            generation,
            machine,
            keep,
            self.release,
            seconds=self._service.settings.request_seconds,
            clock=self._service.clock,
        )

    async def spec(self) -> JobSpec:
        """Build the prompt, and all that a worker needs; the pin stays. Raises ApiError; the pin is then gone."""
        prompt, generation = await self._rendered()
        return JobSpec(
            id=self.id,
            parent=self.parent,
            stored=self.request.store,
            prompt=prompt.tokens.tobytes(),
            sampling=generation.sampling,
            model=generation.model,
            affinity=generation.affinity,
            cache_salt=generation.cache_salt,
            trace=generation.trace,
            functions=prompt.tools.names,
            base=_JSON.encode(self._base(prompt.tools)),
            messages=tuple(prompt.messages),
            items=_JSON.encode(prompt.items),
        )

    async def _rendered(self) -> tuple[Prompt, Generation]:
        """The prompt, and what the engine is asked; what was read for them is let go of. Raises ApiError."""
        try:
            prompt = await in_steps(self._prompt())
            identify(prompt.items, self.id)
        except BaseException:
            await self.release()
            raise
        self.request = msgspec.structs.replace(self.request, input=READ, tools=READ)
        generation = self._generation(prompt)
        self._chain = Chain(ids=self._chain.ids[-1:], pin=self._chain.pin)
        return prompt, generation

    def _generation(self, prompt: Prompt) -> Generation:
        """What the engine is asked.

        Turns of one conversation, or requests of one `prompt_cache_key`, go where their beginning is cached. Cached
        prefixes are a tenant's own, and no other harmonium's: in the usage of one, another's prompts would show.
        """
        room = self._model.context_tokens - len(prompt.tokens)
        wanted = self.request.max_output_tokens or self._service.settings.max_output_tokens
        defaults = self._model.defaults
        return Generation(
            id=self.id,
            prompt=prompt.tokens,
            sampling=Sampling(
                max_tokens=min(wanted, room),
                temperature=self._temperature,
                top_p=self._top_p,
                stop_ids=tokens.STOPS,
                top_k=defaults.top_k,
                min_p=defaults.min_p,
                repetition_penalty=defaults.repetition_penalty,
            ),
            model=self._model.id,
            affinity=self.request.prompt_cache_key or (self._chain.ids or (self.id,))[0],
            cache_salt=_salt(self._service.settings.key_prefix, self._caller.tenant),
            trace=self._caller.trace,
        )

    def _prompt(self) -> Generator[None, None, Prompt]:
        settings = self._service.settings
        return build_prompt(
            self.request,
            list(self._chain.messages()),
            Identity(settings.model_identity, settings.knowledge_cutoff, self._model.context_tokens),
            date=datetime.fromtimestamp(self.created_at, UTC).date().isoformat(),
            limits=self._service.limits,
        )

    def _base(self, tools: Tools) -> Response:
        """The response as it is created."""
        request = self.request
        return Response(
            id=self.id,
            created_at=int(self.created_at),
            status=ResponseStatus.IN_PROGRESS,
            model=request.model,
            instructions=request.instructions,
            previous_response_id=request.previous_response_id,
            tools=list(tools.echo),
            tool_choice="auto",
            parallel_tool_calls=request.parallel_tool_calls,
            max_output_tokens=request.max_output_tokens,
            max_tool_calls=request.max_tool_calls,
            temperature=self._temperature,
            top_p=self._top_p,
            reasoning={"effort": request.effort, "summary": None},
            text={"format": {"type": "text"}, "verbosity": "medium"},
            metadata=request.metadata,
            store=request.store,
            safety_identifier=request.safety_identifier,
            prompt_cache_key=request.prompt_cache_key,
            background=request.background,
            service_tier=request.tier,
        )

    async def _keep(self, prompt: Prompt, machine: Machine, response: Response) -> None:
        """Store the turn, where the request wants that and its caller will learn its id. Raises StoreError."""
        unheard = response.status is ResponseStatus.FAILED and not response.output and not self.request.stream
        if not self.request.store or unheard:
            return
        turn = Turn(
            id=self.id,
            parent=self._chain.tip,
            status=Status(response.status),
            messages=(*prompt.messages, *machine.messages),
            response=_JSON.encode(response),
            items=_JSON.encode(prompt.items),
        )
        await self._service.store.append(self._caller.tenant, turn, pin=self._chain.pin)
        self._pinned = False

    async def release(self) -> None:
        """Let go of the parent, if that is still to do. If the store can't just now, the pin's own end has to do."""
        if not self._pinned or self._chain.tip is None or self._chain.pin is None:
            return
        self._pinned = False
        try:
            await self._service.store.unpin(self._caller.tenant, self._chain.tip, self._chain.pin)
        except StoreError as error:
            logs.event(logger, logging.WARNING, "pin left to expire", response_id=self.id, reason=str(error))


async def begin(service: Service, caller: Caller, request: CreateRequest) -> Creation:
    """Read what the request continues, pinned. Raises ApiError, and EngineUnavailable where no model is known yet."""
    model = await known_model(service.engine)
    if request.model != model.id:
        raise ApiError(
            404,
            f"The model '{request.model[:100]}' does not exist here; this service serves '{model.id}'.",
            code="model_not_found",
            param="model",
        )
    chain = Chain()
    if request.previous_response_id is not None:
        try:
            chain = await service.store.chain(caller.tenant, request.previous_response_id, pin=True)
        except StoreError as error:
            raise store_refusal(error) from error
    return Creation(service, caller, request, model, chain)


@lru_cache(maxsize=SALTS_CACHED)
def _salt(prefix: str, tenant: str) -> str:
    """What keeps cached prefixes apart: hexadecimal, as vLLM takes at most 128 characters and not any."""
    return blake2b(f"{prefix}/{tenant}".encode(), digest_size=32).hexdigest()


async def known_model(engine: Engine) -> ModelCard:
    """What the engine serves; it is asked again where it didn't know. Raises EngineUnavailable."""
    try:
        return engine.model
    except EngineUnavailable:
        await engine.check()
        return engine.model


async def in_steps(work: Generator[None, None, T]) -> T:
    """Run a generator to its end, letting others run between its steps.

    A sleep of 0 would queue before the timers that are due by then; this short one queues behind them.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(BRIEFLY)
