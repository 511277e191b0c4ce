"""`POST /v1/chat/completions`, `/v1/completions` and `/v1/embeddings`, where the engine has servers to ask."""

from hashlib import blake2b

from fastapi import Request
from starlette.responses import Response as HttpResponse

from service.api.passed import Endpoint, PassedLimits, Read, read_passed
from service.engine.pass_through import Passed, PassedUsage
from service.errors import ApiError, invalid_value
from service.responses.plan import MODEL_CHARS
from service.responses.prepare import model_of
from service.responses.service import salt_of
from service.steps import in_steps
from service.web.passing.answer import PassedAnswer
from service.web.plain import PlainRouter
from service.web.routes.received import body_of, caller_of, exchange_of, preparing, service_of
from store.turn import Expense

TOKEN_BYTES = 4
"""About how many bytes of a request are a token: its server alone counts them, and tells at the end."""

router = PlainRouter("Passed on")


@router.route("POST", "/chat/completions", summary="Create a chat completion", operation_id="createChatCompletion")
async def chat(request: Request) -> HttpResponse:
    """Passed on to the engine's server. Nothing is stored."""
    return await _passed_on(request, Endpoint.CHAT)


@router.route("POST", "/completions", summary="Create a completion", operation_id="createCompletion")
async def complete(request: Request) -> HttpResponse:
    """Passed on to the engine's server. Nothing is stored."""
    return await _passed_on(request, Endpoint.COMPLETIONS)


@router.route("POST", "/embeddings", summary="Create embeddings", operation_id="createEmbedding")
async def embed(request: Request) -> HttpResponse:
    """Passed on to the engine's server, where its model makes embeddings."""
    return await _passed_on(request, Endpoint.EMBEDDINGS)


async def _passed_on(request: Request, endpoint: Endpoint) -> HttpResponse:
    """The server's answer to a request. Raises ApiError, EngineUnavailable."""
    service, exchange = service_of(request), exchange_of(request)
    settings = service.settings
    limits = PassedLimits(service.limits.items, service.limits.tools, service.limits.tools_bytes)
    body = await body_of(request)
    async with preparing(request, len(body)):
        read = await in_steps(read_passed(body, endpoint, limits))
    reads = len(body) // TOKEN_BYTES
    del body  # its members: what goes on is of them
    caller = caller_of(request)
    card = await model_of(service, caller, read.model)
    if not service.engine.passes_on(card.id):
        message = f"No server of '{card.id}' has {endpoint}. Ask by POST /v1/responses, or another model."
        raise ApiError(404, message, code="model_not_found", param="model")
    priority = _priority(read, goes_first=service.keys.may_go_first(exchange.tenant))
    exchange.slot.take_answers(read.answers - 1)
    passed = Passed(
        id=exchange.request_id,
        path=endpoint,
        members=read.within(card.context_tokens, card.max_output_tokens),
        answers=read.answers,
        stream=read.stream,
        model=card.id,
        affinity=read.cache_key or caller.session or _affinity(exchange.tenant, read) or exchange.request_id,
        cache_salt=salt_of(settings.key_prefix, exchange.tenant, read.cache_salt),
        priority=priority,
        trace=caller.trace,
        tenant=exchange.tenant,
    )

    async def count(usage: PassedUsage) -> None:
        tokens = (usage.input_tokens, usage.cached_tokens, usage.output_tokens)
        expense = Expense(caller.key, card.id[:MODEL_CHARS], *tokens)
        await service.tally.count(caller.tenant, service.store.new_id(), expense)

    writes = 0 if endpoint is Endpoint.EMBEDDINGS else settings.max_output_tokens * read.answers
    id = service.store.new_id()
    within = exchange.reserved_tokens(service.limiter, card.id, id, reads=reads, writes=writes)
    reserved = await exchange.resources.enter_async_context(within)
    return PassedAnswer(service.engine, passed, exchange, settings, count, reserved)


def _priority(read: Read, *, goes_first: bool) -> int:
    """Its place in the server's queue. Raises ApiError for one before other tenants', unless this one `goes_first`."""
    if read.priority is None:
        return read.tier if goes_first else max(0, read.tier)
    if read.priority < 0 and not goes_first:
        raise invalid_value("priority", read.priority, "Below 0 it would go before other tenants' requests.")
    return read.priority


def _affinity(tenant: str, read: Read) -> str:
    """What requests of one conversation have in common where nothing else says it: what it begins with. Tenants have
    no conversation in common.
    """
    return blake2b(read.beginning, key=tenant.encode()[:64], digest_size=16).hexdigest() if read.beginning else ""
