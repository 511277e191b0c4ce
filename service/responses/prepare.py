"""One create request from its body to a run, and its turn to the store. Knows no HTTP.

    check ─▶ chain, pinned ─▶ prompt ─┬▶ run ─▶ append, unpinned
                                      └▶ spec, for whoever queues it

The pin keeps the parent's history for this run even if somebody deletes the parent meanwhile. Whatever fails between
the chain and the end lets go of it.
"""

import logging
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from service import logs
from service.api.input.read import identify
from service.api.request import CreateRequest
from service.api.response import Response, ResponseStatus
from service.engine.port import Engine, EngineUnavailable, Generation, ModelCard, Sampling
from service.errors import ApiError
from service.harmony import tokens
from service.harmony.messages import harmony_messages
from service.responses.compaction.request import ASK
from service.responses.output.items.emitter import Seal
from service.responses.output.machine import Machine
from service.responses.plan import JobSpec
from service.responses.prompt.build import Identity, Prompt, build_prompt
from service.responses.read import read_request
from service.responses.references import stored_items
from service.responses.refusals import store_refusal
from service.responses.rules import Rules
from service.responses.run import Run
from service.responses.sealed import REASONING
from service.responses.service import Caller, Service
from service.steps import in_steps
from store.errors import StoreError
from store.turn import Chain, Status, Turn

logger = logging.getLogger(__name__)
T = TypeVar("T")

SALTS_CACHED = 1024

ENGINE_PRIORITY = {"priority": -1, "default": 0, "flex": 1}
"""By service tier, unless a request names its own; an engine serves a lower one earlier."""

_JSON = msgspec.json.Encoder()

READ = msgspec.Raw(b"null")
"""Stands for JSON that was read: a run may take minutes, and needn't hold on to megabytes meanwhile."""


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
        self._root = (chain.ids or (self.id,))[0]
        self.created_at = service.clock()
        self.left_out: tuple[str, ...] = ()
        """Hosted tools that the model isn't told of, once the request was read."""

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
        return await self.run(*await self.rendered())

    async def run(self, prompt: Prompt, base: Response) -> Run:
        """The run of what was `rendered`. Raises ApiError; the pin is then gone."""
        seal = await self._guarded(sealing(self._service, self._caller.tenant, prompt.rules))
        machine = Machine(base, prompt.rules, len(prompt.tokens), seal)

        async def keep(response: Response) -> None:
            await self._keep(prompt, machine, response)

        return Run(
            self._service.engine,
            self._generation(prompt),
            machine,
            keep,
            self.release,
            seconds=self._service.settings.request_seconds,
            clock=self._service.clock,
        )

    async def spec(self) -> JobSpec:
        """Build the prompt, and all that a worker needs; the pin stays. Raises ApiError; the pin is then gone."""
        prompt, base = await self.rendered()
        generation = self._generation(prompt)
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
            functions=frozenset(),
            base=_JSON.encode(base),
            messages=tuple(prompt.messages),
            items=_JSON.encode(prompt.items),
            rules=prompt.rules,
            priority=generation.priority,
        )

    async def rendered(self) -> tuple[Prompt, Response]:
        """The prompt, and the response as it is created; what was read for them is let go of. Raises ApiError."""
        return await self._guarded(self._rendered())

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what comes before there is a run to let go of the pin."""
        try:
            return await work
        except BaseException as error:
            await self.release()
            if isinstance(error, StoreError):
                raise store_refusal(error) from error
            raise

    async def _rendered(self) -> tuple[Prompt, Response]:
        service, tenant = self._service, self._caller.tenant
        read = await in_steps(read_request(self.request, service.limits, await service.seals.of(tenant)))
        self.left_out = read.tools.left_out
        stored = await stored_items(service.store, tenant, read.references)
        settings = service.settings
        prompt = await in_steps(
            build_prompt(
                read,
                self.request,
                list(self._chain.messages()),
                Identity(settings.model_identity, settings.knowledge_cutoff, self._model.context_tokens),
                date=datetime.fromtimestamp(self.created_at, UTC).date().isoformat(),
                resolved=stored,
                compacting=ASK if read.trigger else None,
            )
        )
        identify(prompt.items, self.id)
        base = self._base(prompt)
        if prompt.rules.harmony:
            base = msgspec.structs.replace(base, input_messages=await in_steps(harmony_messages(prompt.tokens)))
        self.request = msgspec.structs.replace(
            self.request, input=READ, tools=READ, tool_choice=READ, format=READ, previous_input_messages=READ
        )
        self._chain = Chain(ids=self._chain.ids[-1:], pin=self._chain.pin)
        return prompt, base

    def _generation(self, prompt: Prompt) -> Generation:
        """What the engine is asked.

        Turns of one conversation, or requests of one `prompt_cache_key`, go where their beginning is cached. Cached
        prefixes are a tenant's own, and no other harmonium's: in the usage of one, another's prompts would show.
        """
        request, wished = self.request, self.request.sampling
        room = self._model.context_tokens - len(prompt.tokens)
        wanted = request.max_output_tokens or self._service.settings.max_output_tokens
        defaults = self._model.defaults
        repetition = wished.repetition_penalty
        return Generation(
            id=f"{self.id}-{request.request_id}" if request.request_id else self.id,
            prompt=prompt.tokens,
            sampling=Sampling(
                max_tokens=wanted if prompt.rules.after_compaction is not None else min(wanted, room),
                temperature=self._temperature,
                top_p=self._top_p,
                stop_ids=tokens.ENDS,
                top_k=defaults.top_k if wished.top_k is None else wished.top_k,
                min_p=defaults.min_p if wished.min_p is None else wished.min_p,
                presence_penalty=wished.presence_penalty,
                frequency_penalty=wished.frequency_penalty,
                repetition_penalty=defaults.repetition_penalty if repetition is None else repetition,
                seed=wished.seed,
                logprobs=prompt.rules.top_logprobs,
            ),
            model=self._model.id,
            affinity=request.prompt_cache_key or self._root,
            cache_salt=_salt(self._service.settings.key_prefix, self._caller.tenant, request.cache_salt or ""),
            priority=ENGINE_PRIORITY[request.tier] if request.priority is None else request.priority,
            trace=self._caller.trace,
        )

    def _base(self, prompt: Prompt) -> Response:
        """The response as it is created."""
        request = self.request
        return Response(
            id=self.id,
            created_at=int(self.created_at),
            status=ResponseStatus.IN_PROGRESS,
            model=request.model,
            instructions=request.instructions,
            previous_response_id=request.previous_response_id,
            tools=list(prompt.tools.echo),
            tool_choice=prompt.chosen.echo,
            parallel_tool_calls=request.parallel_tool_calls,
            max_output_tokens=request.max_output_tokens,
            max_tool_calls=request.max_tool_calls,
            temperature=self._temperature,
            top_p=self._top_p,
            reasoning={"effort": prompt.effort, "summary": request.summary},
            text={"format": prompt.format.echo, "verbosity": request.verbosity},
            metadata=request.metadata,
            store=request.store,
            safety_identifier=request.safety_identifier,
            prompt_cache_key=request.prompt_cache_key,
            background=request.background,
            service_tier=request.tier,
            truncation=request.truncation,
            top_logprobs=request.top_logprobs,
            presence_penalty=request.sampling.presence_penalty,
            frequency_penalty=request.sampling.frequency_penalty,
            prompt=_prompt_echo(request),
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
    request = await service.templates.applied(request)
    chain = Chain()
    if request.previous_response_id is not None:
        try:
            chain = await service.store.chain(caller.tenant, request.previous_response_id, pin=True)
        except StoreError as error:
            raise store_refusal(error) from error
    return Creation(service, caller, request, model, chain)


async def sealing(service: Service, tenant: str, rules: Rules) -> Seal | None:
    """What closes the parts of a response that are sealed; None where it has none. Raises StoreUnavailable."""
    if not rules.sealed and not rules.compacting and rules.after_compaction is None:
        return None
    seal = (await service.seals.of(tenant)).seal
    seal(REASONING, b"")  # where the key can't be had, better now than amid the answer
    return seal


def _prompt_echo(request: CreateRequest) -> dict[str, Any] | msgspec.UnsetType:
    """The stored prompt that a request names, as it names it."""
    if request.prompt is None:
        return msgspec.UNSET
    return {"id": request.prompt.id, "version": request.prompt.version, "variables": request.prompt.variables}


@lru_cache(maxsize=SALTS_CACHED)
def _salt(prefix: str, tenant: str, wished: str) -> str:
    """What keeps cached prefixes apart: hexadecimal, as vLLM takes at most 128 characters and not any."""
    own = blake2b(wished.encode()).digest() if wished else b""
    return blake2b(f"{prefix}/{tenant}".encode(), digest_size=32, key=own).hexdigest()


async def known_model(engine: Engine) -> ModelCard:
    """What the engine serves; it is asked again where it didn't know. Raises EngineUnavailable."""
    try:
        return engine.model
    except EngineUnavailable:
        await engine.check()
        return engine.model
