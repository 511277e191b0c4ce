"""From a checked create request to its plan, with its parent pinned meanwhile. Knows no HTTP and no queue.

    model, stored prompt ─▶ parent, pinned ─▶ items, tools, formats ─▶ prompt ─▶ Plan

The large parts of a request (its JSON, the history that it continues) are let go of when its plan is made: a run may
take minutes, and needn't hold megabytes meanwhile.
"""

import asyncio
from array import array
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from service import spans
from service.api import items as listed
from service.api.content import USUAL_BOUNDS
from service.api.ids import response_of
from service.api.read import identify
from service.api.request import HARMONY_EFFORT, CreateRequest, Window
from service.api.response import Extensions, Response, ResponseStatus
from service.api.steer import is_steerable, settings_of
from service.engine.engines import salt_of
from service.engine.port import EngineRefused, Generation, ModelCard, Sampling, Speech
from service.errors import ApiError, InvalidRequest, context_length_exceeded, invalid_value, not_served
from service.harmony.messages import harmony_messages
from service.harmony.pictures import Pictured, ShownPicture
from service.pictures import REFERENCE
from service.responses.conversation_hold import ConversationHold
from service.responses.output.reading import NOTHING, PREFIX, READ, KnownTurns, Speaking, speaking_in
from service.responses.output.rules import PictureRoom, Rules, ServerTools
from service.responses.parent import SERVER, Continuation, Parent, Recall, continuation_of
from service.responses.plan import Plan
from service.responses.prompt.build import Prompt, build_prompt
from service.responses.prompt.read import MAX_TOOLS, Read, read_request
from service.responses.references import refuse_known, stored_items
from service.responses.seal import Sealer
from service.responses.service import Caller, Service
from service.responses.templates import apply_template
from service.settings.keys import Keys
from service.settings.sources import variable
from service.steps import in_steps
from service.tools.port import ToolCatalog
from store.codec import THREAD_FROM_BYTES
from store.turn import MOST_PICTURE_BYTES, MOST_PICTURES, Picture, StoredMessage

SHOWN_MODELS = 16
"""How many models a refusal names."""

CONNECTIONS = "connections"
"""The kind of what is sealed of a plan."""

MOST_SHOWN_BYTES = 32 << 20
"""The most bytes of the pictures of a prompt, each as often as it is shown: so often it is in a body."""

TOLD_PICTURES, TOLD_BYTES = 20, 8 << 20
"""The most pictures of servers' answers in one response, and their bytes: its event log has them, too."""

SHORTENINGS = 3
"""How often a prompt is made again because it was too long for its model."""

SHORTENED = 0.95
"""How much of what would fit by the last count is then aimed at: messages don't all weigh the same."""

ENGINE_PRIORITY = {"priority": -1, "default": 0, "flex": 1}
"""By service tier, unless a request names its own; an engine serves a lower one earlier."""

SPARE_PRIORITY = 2
"""The same of a background response as long as it has hours: an engine serves it when all others are."""


class Prepared(msgspec.Struct, frozen=True):
    """A plan, and other facts of its request."""

    plan: Plan
    parent: Parent
    items: Sequence[listed.InputItem]
    """The input as listed, as `plan.items` has it in JSON."""
    left_out: tuple[str, ...]
    """Hosted tools that the model isn't told of."""
    items_left_out: tuple[str, ...]
    """The kinds of items of its input that add nothing to the prompt."""
    stream: bool = False
    obfuscate: bool = True
    samples: bool = True
    """Whether the model answers; else the response ends at once."""
    steerable: bool = True
    joining: ConversationHold | None = None
    """The conversation that the response is added to, where it is."""
    real: bool = True
    """Whether a model answers, and not the demo engine."""
    window: Window = "soonest"
    group: str = ""
    """The client's name for the background responses that it belongs to."""


async def prepare(
    service: Service,
    caller: Caller,
    request: CreateRequest,
    resources: AsyncExitStack,
    *,
    recall: Recall | None = None,
    parent: Parent | None = None,
    reserves: bool = True,
) -> Prepared:
    """The plan of a request, whose parent stays pinned, or its conversation held, as long as its `resources`. Whoever
    awaits this holds no request meanwhile, which may be megabytes.

    `recall` is given where its connection remembers its responses; the parent then keeps its chain for the next one.
    `parent` is given where the request goes on from a response which has yet to end; `reserves` says whether its
    caller's limits are reserved behind it, else what it fetches counts as a request. Raises ApiError, StoreError, and
    EngineUnavailable where no model is known yet.
    """
    if request.conversation is not None:
        caller.entry.require("api.conversations.write" if request.store else "api.conversations.read")
    model = await model_of(service, caller, request.model)
    if not request.model:
        request = msgspec.structs.replace(request, model=model.id)
    request, continuation = _in_turn(service.tenants.keys, caller.tenant, request), None
    if parent is None:
        if request.prompt is not None:
            request = await apply_template(request, request.prompt, service.settings.prompts_dir)
        continuation = await continuation_of(service, caller, request, resources, recall)
        request, parent = continuation.request, continuation.parent
    span = spans.current.get()
    with span.child("prompt") as making:
        made = await _Preparation(
            *(service, caller, request, model, parent, resources, continuation),
            counts=not (reserves and request.generate),
        ).plan()
        if span.kept:
            span.note(made.plan.facts)
            making.note({"harmonium.prompt.tokens": made.plan.input_tokens} | made.plan.facts)
    return made


async def model_of(service: Service, caller: Caller, name: str) -> ModelCard:
    """The model of this name, or the first one for no name. Raises ApiError where there is none that the caller may
    use, EngineUnavailable.
    """
    model = await service.engine.find(name, caller.entry.may_use)
    if model is None:
        raise _no_model(service, caller, name)
    return model


def _no_model(service: Service, caller: Caller, name: str) -> ApiError:
    offers = [offer for offer in service.engine.offers(caller.entry.may_use) if offer.names]
    served = ", ".join(f"'{offer.names[0]}'" for offer in offers[:SHOWN_MODELS]) or "you none"
    setting = variable("engines" if service.settings.engines else "model_aliases")
    advice = f"Its operator can give it other names ({setting})."
    if offers and not any(offer.card is None or offer.card.real for offer in offers):
        setting = variable("engines" if service.settings.engines else "engine")
        advice = f"That is the demo engine, without a real model; its operator can configure another ({setting})."
    return ApiError(
        404,
        f"The model '{name[:100]}' does not exist here; this service serves {served}. {advice}",
        code="model_not_found",
        param="model",
    )


def _in_turn(keys: Keys, tenant: str, request: CreateRequest) -> CreateRequest:
    """The request, of a tenant who may not go before others without its priority. Raises ApiError for a number."""
    if keys.may_go_first(tenant):
        return request
    if request.priority is not None and request.priority < ENGINE_PRIORITY["default"]:
        raise invalid_value(
            "priority",
            request.priority,
            f"Below {ENGINE_PRIORITY['default']} it would overtake other tenants' requests. Send "
            f"{ENGINE_PRIORITY['default']} or more, or have this tenant added to {variable('priority_tenants')}.",
        )
    return msgspec.structs.replace(request, tier="default") if request.tier == "priority" else request


@dataclass(frozen=True)
class _Preparation:
    """One request on its way to a plan: its caller, its model, and the parent that it continues."""

    service: Service
    caller: Caller
    request: CreateRequest
    model: ModelCard
    parent: Parent
    resources: AsyncExitStack
    continuation: Continuation | None = None
    counts: bool = False
    """Whether what it fetches counts as a request, as nothing is reserved for it."""

    async def plan(self) -> Prepared:
        """Its plan. Raises ApiError, StoreError, and EngineUnavailable where a template is to make the prompt."""
        request, model, parent = self.request, self.model, self.parent
        id, created_at = self.caller.response_id or self._new_id(), self.service.store.clock()
        opener = await self.service.seals.of(self.caller.tenant)
        looking = self.service.toolbox.look_up
        looked = await looking(self.caller.tenant, request.tools, MAX_TOOLS, self._refuse_exhausted)
        read, notes = await self._read(opener, looked)
        prefixes = parent.notes(PREFIX)[-1:]
        if model.speech is not None or not model.constrains:
            _refuse_grammars(read.rules, model)
        if model.speech is None:
            if request.template_options:
                advice = "The model's prompt is Harmony's, and not made by a template; see 'reasoning.effort'."
                raise not_served("chat_template_kwargs", ", ".join(request.template_options), advice)
            prompt = await self._prompt(read, parent.take_history(), created_at, model.context_tokens)
            rules, asked, length = prompt.rules, prompt.tokens, len(prompt.whole)
        else:
            prompt, asked, speaking = await self._template_prompt(model.speech, read, created_at)
            rules, length = msgspec.structs.replace(prompt.rules, chat=speaking), speaking.about or len(asked)
        own = self.caller.entry.keeps_ids
        if self.service.keeps_ids if own is None else own:
            rules = msgspec.structs.replace(rules, keeps=True)
            prefix = StoredMessage(PREFIX, b"", name=b64encode(prompt.prefix).decode())
            notes = [*notes, *([prefix] if model.speech is None and [prefix] != prefixes else ())]
        pictures = tuple({each.digest: each for each in (*prompt.pictures, *parent.pictures)}.values())
        if _sees(model) and rules.hosts:
            rules = msgspec.structs.replace(rules, pictures=self._picture_room(prompt, pictures))
        items = identify(prompt.items, id)
        sampling = _sampling(request, rules, length, model, self.service.settings.default_output_tokens)
        base = _base(request, read, sampling, id, int(created_at))
        if self.continuation is not None and self.continuation.recognised:
            base = Extensions.extend(base, recognised=True)
        if prompt.rules.harmony:
            base = msgspec.structs.replace(base, input_messages=await in_steps(harmony_messages(prompt.whole)))
        plan = Plan(
            base=base,
            generation=self._generation(id, asked, sampling, speaking_in(rules)),
            parent=parent.id,
            stored=request.store,
            messages=(*notes, *parent.disarming, *prompt.messages),
            pictures=pictures,
            items=msgspec.json.encode(items),
            rules=rules,
            settings=_settings(request, base.instructions, prompt),
            connections=opener.seal(CONNECTIONS, looked.connections) if looked.connections else "",
            root=parent.root or "",
            key=self.caller.entry.key,
            announced=request.announced,
            said=self.continuation.said if self.continuation is not None and request.store else b"",
        )
        telling = (listed.ForeignItem, listed.ToolSearchCallItem)
        unseen = [*read.gathered.left_out]
        unseen += [item.kind for item in items if isinstance(item, telling) and not item.is_shown]
        if any(not (_sees(model) and _is_shown(item, url)) for item in items for url in item.images):
            unseen.append("input_image")
        return Prepared(
            plan,
            parent,
            items,
            read.tools.left_out,
            tuple(dict.fromkeys(unseen)),
            stream=request.stream,
            obfuscate=request.obfuscate,
            samples=request.generate,
            steerable=is_steerable(request) and not prompt.rules.compacting,
            joining=None if self.continuation is None else self.continuation.joined,
            real=model.real,
            window=request.window,
            group=request.continuation_id or "",
        )

    def _picture_room(self, prompt: Prompt, pictures: Sequence[Picture]) -> PictureRoom:
        """The room for pictures of servers' answers in its turn, and in the prompt behind them."""
        bounds, shown = self.service.settings.picture_bounds or USUAL_BOUNDS, _pictures_in(prompt.shown)
        size = max(sum(len(each.data) for each in pictures), sum(each.bytes for each in shown))
        number = min(TOLD_PICTURES, MOST_PICTURES - len(pictures), bounds.conversation - len(shown))
        return PictureRoom(number, min(TOLD_BYTES, MOST_PICTURE_BYTES - size), bounds.bytes, bounds.pixels)

    def _new_id(self) -> str:
        """A new id. Background responses that belong together are in one shard, as each shard has its own queue; and so
        are conversations that begin alike, where they are recognised.
        """
        tenant, together = self.caller.tenant, self.request.background and self.request.continuation_id
        named = f"{tenant}/{together}" if together else "" if self.continuation is None else self.continuation.together
        return self.service.store.new_id(self.parent.id, together=named)

    async def _read(self, opener: Sealer, looked: ToolCatalog) -> tuple[Read, list[StoredMessage]]:
        """Its items, tools and formats, and the notes of the lists of tools that it is the first to show. Raises
        ApiError, StoreError.
        """
        parent = self.parent
        builtins = self.service.toolbox.builtins if self.model.speech is None else ()  # no other was trained with them
        found = (looked.offers, builtins, parent.loaded, looked.routed)
        sent = await self.service.attachments.read_into(self.caller.entry, self.request.input)
        request = msgspec.structs.replace(self.request, input=sent)
        read = await in_steps(
            read_request(request, opener, parent.standing, *found, bounds=self.service.settings.picture_bounds)
        )
        if self.continuation is None or not self.continuation.recognised:  # it sends its whole history on purpose
            await refuse_known(self.service.store, self.caller.tenant, parent.responses, read.ids)
        if _sees(self.model):
            fetcher, look = self.service.picture_fetcher, self._refuse_exhausted
            await fetcher.take(self.caller.tenant, read.gathered, self.resources, look, refuses=True)
        notes, lists = _listed_first(looked, parent, read.items) if looked.lists else ([], ())
        if read.rules.hosts or looked.offers:
            rules = msgspec.structs.replace(read.rules, listed=lists, context_tokens=self.model.context_tokens)
            read = msgspec.structs.replace(read, rules=await self._equip(read, rules))
        return read, notes

    async def _refuse_exhausted(self) -> None:
        """Raise ApiError 429 where its caller's limits let nothing begin, so nothing is fetched either."""
        entrance = self.service.tenants.entrance
        succeeds = self.continuation is None
        await entrance.refuse_exhausted(self.caller.entry, self.model.id, counts=self.counts, succeeds=succeeds)

    async def _equip(self, read: Read, rules: Rules) -> Rules:
        """The rules with what tools need that the model was trained with: a place, and what they displayed before."""
        toolbox = self.service.toolbox
        if read.tools.trained:
            ran = (item for item in reversed(read.items) if isinstance(item, listed.CodeInterpreterCallItem))
            container = next((item.container_id for item in ran if item.container_id), self.parent.container)
            if container != self.parent.container or toolbox.names_place(rules.callees):
                self.caller.entry.require("api.containers.write")
            callees = await toolbox.bind(self.caller.entry, rules.callees, container)
            rules = msgspec.structs.replace(rules, callees=callees)
            displays = await asyncio.to_thread(toolbox.displays, callees, self.parent.notes)
            rules = msgspec.structs.replace(rules, displays=displays)
        return rules

    async def _prompt(
        self, read: Read, history: Sequence[StoredMessage], created_at: float, context_tokens: int
    ) -> Prompt:
        """The prompt behind a history, as long as a context of so many tokens. Raises ApiError, StoreError."""
        service = self.service
        prompt = await in_steps(
            build_prompt(
                read,
                self.request,
                history,
                context_tokens,
                date=datetime.fromtimestamp(created_at, UTC).date().isoformat(),
                resolved=await self._look_up(read) if read.references else {},
                waiting=self.parent.waiting,
                approvals=service.toolbox.approvals,
                cut_calls=self.parent.cut_calls,
                keeps_thoughts=self.model.speech is not None,
            )
        )
        if prompt.rules.answers is not None:
            caller = self.caller
            await service.toolbox.approvals.refuse_used(caller.tenant, prompt.rules.answers, caller.response_id)
        return prompt

    async def _look_up(self, read: Read) -> Mapping[str, msgspec.Raw]:
        """The stored items that it refers to, once the responses have ended that they are of. Raises InvalidRequest,
        StoreUnavailable.
        """
        tenant = self.caller.tenant
        for id in dict.fromkeys(filter(None, map(response_of, read.references))):
            await self.service.running.ended(tenant, id)
        replayed = [item.reference for item in read.items if isinstance(item, listed.ItemReference) and item.replayed]
        return await stored_items(self.service.store, tenant, read.references, replayed)

    async def _template_prompt(
        self, speech: Speech, read: Read, created_at: float
    ) -> tuple[Prompt, "array[int]", Speaking]:
        """The prompt of a model that doesn't speak Harmony, its ids, and how the response is read. Raises ApiError
        where there are too many, or the request has what such a model can't do; StoreError; and EngineUnavailable.

        Its messages are counted in Harmony's tokens. Where they turn out to be more of the model's than its context
        has, and may be left out, it is made again of fewer.
        """
        service, model, request = self.service, self.model, self.request
        noted = not self.parent.cut
        known = await self._known_part() if noted else NOTHING
        history = self.parent.take_history()
        context, shortenings = model.context_tokens, 0
        while True:
            prompt = await self._prompt(read, history, created_at, context)
            if speech.sees:
                _check_pictures(prompt.shown, (self.service.settings.picture_bounds or USUAL_BOUNDS).conversation)
            if prompt.partial:  # turns that were read may be among those left out
                known, noted = NOTHING, False
            try:
                parts = (service.engine.render, model, speech, read, request, prompt, known)
                made, speaking = await service.readings.prompt(*parts, noted=noted)
            except EngineRefused as error:
                message = f"The model's chat template rejects the input: {error}"
                raise InvalidRequest(message, param="input") from error
            if len(made.ids) < model.context_tokens:
                break
            if request.truncation != "auto" or shortenings == SHORTENINGS:
                raise context_length_exceeded(model.context_tokens, len(made.ids))
            shortenings += 1
            context = int(len(prompt.tokens) * model.context_tokens / len(made.ids) * SHORTENED)
        if known.turns and made.ids:
            service.metrics.prefix_read.inc(known.length)
            service.metrics.prefix_kept.inc(made.kept)
        return prompt, made.ids, speaking

    async def _known_part(self) -> KnownTurns:
        """The part of the conversation that the model has sampled."""
        notes = self.parent.notes(READ)
        if sum(note.size for note in notes) > THREAD_FROM_BYTES:
            return await asyncio.to_thread(self.service.readings.turns_in, notes, self.model.id)
        return self.service.readings.turns_in(notes, self.model.id)

    def _generation(self, id: str, prompt: "array[int]", sampling: Sampling, speaking: Speaking) -> Generation:
        """The request to the engine."""
        request, caller, parent = self.request, self.caller, self.parent
        named = request.prompt_cache_key, request.session_id, request.continuation_id, caller.session
        return Generation(
            id=f"{id}-{request.request_id}" if request.request_id else id,
            prompt=prompt,
            sampling=sampling,
            model=self.model.id,
            affinity=next(filter(None, named), parent.root or id),
            cache_salt=salt_of(self.service.settings.redis_prefix, caller.tenant, request.cache_salt or ""),
            priority=ENGINE_PRIORITY[request.tier] if request.priority is None else request.priority,
            trace=caller.trace,
            response=id,
            continues=parent.id or "",
            decoded=speaking.decoded,
            marks=speaking.spelled,
            tenant=self.caller.tenant,
        )


def _refuse_grammars(rules: Rules, model: ModelCard) -> None:
    """Raise InvalidRequest for a tool under a grammar: nothing would hold the calls of this model to it."""
    for callee in rules.callees:
        if callee.kind == "custom" and not callee.wrapped:
            advice = f"Nothing holds the model '{model.id}' to a grammar. Leave its 'format' out."
            raise not_served("tools", callee.name, advice)


def _sees(model: ModelCard) -> bool:
    return model.speech is not None and model.speech.sees


def _is_shown(item: listed.InputItem, url: str) -> bool:
    """Whether a model that sees gets this image of an item: templates take them of users and tools alone."""
    return url.startswith(REFERENCE) and not (isinstance(item, listed.MessageItem) and item.role != "user")


def _check_pictures(shown: Sequence[StoredMessage], most: int) -> None:
    """Raises InvalidRequest where a prompt shows more pictures than a model is to be sent at once."""
    pictures = _pictures_in(shown)
    size = sum(each.bytes for each in pictures)
    if len(pictures) > most or size > MOST_SHOWN_BYTES:
        raise InvalidRequest(
            f"The conversation has {len(pictures)} pictures with {size:,} bytes, at most {most} and "
            f"{MOST_SHOWN_BYTES:,} bytes are allowed. Compact it, or continue from an earlier response.",
            code="too_many_images",
            param="input",
        )


def _pictures_in(messages: Sequence[StoredMessage]) -> list[ShownPicture]:
    """The pictures of a prompt, each as often as it is shown."""
    return [each for message in messages if isinstance(message, Pictured) for each in message.pictures]


def _listed_first(
    looked: ToolCatalog, parent: Parent, items: Sequence[listed.InputItem]
) -> tuple[list[StoredMessage], tuple[ServerTools, ...]]:
    """Those lists of tools that the conversation has not shown yet, and the notes that it shows them from here on,
    before those of lists that its client has sent back.
    """
    given = {item.lists for item in items if isinstance(item, listed.ForeignItem)}
    new = [
        (StoredMessage(SERVER, b"", name=f"{label} {mark}"), ServerTools(label, tools))
        for label, mark, tools in looked.lists
        if f"{label} {mark}" not in parent.servers
    ]
    shown = [each for each in new if msgspec.json.encode(each[1].server) not in given]
    known = [note for note, tools in new if msgspec.json.encode(tools.server) in given]
    return [*(note for note, _ in shown), *known], tuple(tools for _, tools in shown)


def _settings(request: CreateRequest, instructions: str | None, prompt: Prompt) -> bytes:
    """The settings of its request for the successors of a background response; empty where it can't be steered."""
    if not (request.background and request.store and is_steerable(request)) or prompt.rules.compacting:
        return b""
    if prompt.rules.hosts:  # its request holds the credentials for servers
        return b""
    return settings_of(request, instructions, standing_in(prompt.items))


def standing_in(items: Sequence[listed.InputItem]) -> list[bytes]:
    """Of the items of an input, each as JSON and without its id, those that say how a request is served."""
    settings = (listed.AdditionalToolsItem, listed.ConfigurationUpdateItem)
    return [msgspec.json.encode(msgspec.structs.replace(item, id="")) for item in items if isinstance(item, settings)]


def _sampling(
    request: CreateRequest, rules: Rules, prompt_tokens: int, model: ModelCard, default_output_tokens: int
) -> Sampling:
    """How the engine samples: as the request wants it, else by the model's defaults."""
    wished, defaults = request.sampling, model.defaults
    room = model.context_tokens - prompt_tokens
    wanted = request.max_output_tokens or default_output_tokens
    wanted = min(wanted, model.max_output_tokens or wanted)
    most = wanted if rules.after_compaction is not None else min(wanted, room)
    repetition = wished.repetition_penalty
    return Sampling(
        max_tokens=most,
        min_tokens=min(wished.min_tokens, most),
        temperature=defaults.temperature if request.temperature is None else request.temperature,
        top_p=defaults.top_p if request.top_p is None else request.top_p,
        stop_ids=speaking_in(rules).ends,
        top_k=defaults.top_k if wished.top_k is None else wished.top_k,
        min_p=defaults.min_p if wished.min_p is None else wished.min_p,
        presence_penalty=wished.presence_penalty,
        frequency_penalty=wished.frequency_penalty,
        repetition_penalty=defaults.repetition_penalty if repetition is None else repetition,
        seed=wished.seed,
        logprobs=0 if rules.keeps and rules.top_logprobs is None else rules.top_logprobs,
    )


def _base(request: CreateRequest, read: Read, sampling: Sampling, id: str, created_at: int) -> Response:
    """The response as it is created."""
    return Response(
        id=id,
        created_at=created_at,
        status=ResponseStatus.IN_PROGRESS,
        model=request.model,
        instructions=request.instructions,
        previous_response_id=request.previous_response_id,
        tools=list(read.tools.echo),
        tool_choice=read.chosen.echo,
        parallel_tool_calls=request.parallel_tool_calls,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        reasoning={
            "effort": HARMONY_EFFORT[read.effort],
            "summary": request.summary,
            "context": request.thoughts,
        },
        text={"format": read.format.echo, "verbosity": request.verbosity},
        metadata=request.metadata,
        store=request.store,
        safety_identifier=request.safety_identifier,
        user=msgspec.UNSET if request.user is None else request.user,
        prompt_cache_key=request.prompt_cache_key,
        background=request.background,
        service_tier=request.tier,
        truncation=request.truncation,
        top_logprobs=request.top_logprobs,
        presence_penalty=request.sampling.presence_penalty,
        frequency_penalty=request.sampling.frequency_penalty,
        conversation=msgspec.UNSET if request.conversation is None else {"id": request.conversation},
        prompt=msgspec.UNSET if request.prompt is None else msgspec.structs.asdict(request.prompt),
    )
