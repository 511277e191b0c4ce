"""The engines that the settings name: opened, and changed when their file is read again."""

import logging
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from service.engine.engines import Engines, Member, salt_of
from service.engine.port import MODEL_CREATED, Engine, EngineUnavailable, ModelCard
from service.logs import event
from service.markup.speech import AUTO, SERVER
from service.responses.service import Service
from service.settings.core import ENGINE_URLS
from service.settings.engines import DEMO, EngineEntry, ListedEngine
from service.settings.settings import Settings

if TYPE_CHECKING:
    from service.engine.servers.engine import Access, ServersEngine


logger = logging.getLogger(__name__)

DEMO_MODEL = "gpt-oss-20b"

DEMO_CONTEXT_TOKENS = 131_072
"""The model that the demo engine stands in for, and its context's length."""


def open_engines(settings: Settings, engine: Engine | None = None) -> Engines:
    """The engines that the settings name, or the one that is given."""
    if engine is None and settings.engines:
        return Engines(_members(settings, {}))
    return Engines([Member(engine or open_engine(settings), aliases=settings.model_aliases)])


async def reread(service: Service, taken: bool) -> None:
    """Replace the engines after the files were read again, if they were `taken`."""
    service.metrics.rereads.labels("taken" if taken else "refused").inc()
    settings = service.keys.settings
    if not taken or not settings.listed_engines:
        return
    known = {member.key: member for member in service.engine.members}
    members = _members(settings, known)
    try:
        await service.engine.change(members)
        for listed, member in zip(settings.listed_engines, members, strict=True):
            if listed.key in known and listed.listed.kind != DEMO:
                await cast("ServersEngine", member.engine).change(_access(settings, listed))
    except EngineUnavailable as error:
        event(logger, logging.ERROR, "the engines stay as they were", reason=str(error))


def _members(settings: Settings, known: Mapping[Hashable, Member]) -> list[Member]:
    """The engines of the file, those that are `known` by their keys as they are."""
    return [_member(settings, listed, known.get(listed.key)) for listed in settings.listed_engines]


def _member(settings: Settings, engine: ListedEngine, known: Member | None) -> Member:
    """An engine of the file; one that is known is taken as it is."""
    listed = engine.listed
    card = ModelCard(engine.model, MODEL_CREATED, listed.context_tokens or DEMO_CONTEXT_TOKENS)
    if known is not None:
        opened = known.engine
    elif listed.kind == DEMO:
        opened = _open_demo(settings, card)
    else:
        opened = _open_servers(settings, engine)
    return Member(opened, listed.name, engine.model, listed.aliases, listed.max_output_tokens, engine.key)


def _only_engine(settings: Settings) -> ListedEngine:
    """The engine of servers that ENGINE names, as a file would have it."""
    listed = EngineEntry(settings.model, settings.engine, context_tokens=settings.context_tokens)
    return ListedEngine(listed, settings.engine_urls, settings.engine_api_key)


def _access(settings: Settings, engine: ListedEngine) -> "Access":
    """How to reach the servers of an engine."""
    from service.engine.servers.engine import PROBE_SECONDS, WAIT_SECONDS, Access

    return Access(
        urls=engine.urls,
        weights=engine.listed.weights,
        api_key=engine.api_key.get_secret_value(),
        connections=engine.listed.connections or max(settings.max_concurrent_requests, settings.worker_concurrency),
        kv_tokens=engine.listed.kv_tokens or 0,
        wait_seconds=WAIT_SECONDS,
        probe_seconds=PROBE_SECONDS,
    )


def _open_servers(settings: Settings, engine: ListedEngine) -> Engine:
    """An engine of servers."""
    from service.engine.chat.servers import ByChat, LlamaByChat, VllmByChat
    from service.engine.llama.servers import Llama  # their HTTP client is for who has a server
    from service.engine.servers.engine import ServersEngine
    from service.engine.servers.kind import Kind
    from service.engine.servers.sglang import Sglang
    from service.engine.servers.tensorrt import Tensorrt
    from service.engine.vllm.servers import Vllm

    tenant, shared = next(iter(settings.tenants)), settings.several_tenants
    kinds: dict[str, Callable[[], Kind]] = {
        "vllm": Vllm,
        "sglang": Sglang,
        "tensorrt": lambda: Tensorrt(shared=shared, salt=None if shared else salt_of(settings.key_prefix, tenant, "")),
        "llama": lambda: Llama(shared=shared),
        "chat": lambda: ByChat(shared=shared),
    }
    access, context_tokens = _access(settings, engine), engine.listed.context_tokens
    markup = engine.listed.markup
    if markup == SERVER:
        kinds |= {"vllm": VllmByChat, "llama": lambda: LlamaByChat(shared=shared)}
        markup = AUTO
    kind = kinds[engine.listed.kind]()
    return ServersEngine(kind, access, model=engine.model, context_tokens=context_tokens, markup=markup)


def open_engine(settings: Settings) -> Engine:
    """The engine that ENGINE names."""
    if settings.engine in ENGINE_URLS:
        return _open_servers(settings, _only_engine(settings))
    if settings.engine == "vllm-local":
        from service.engine.vllm.local import VllmLocalEngine  # vLLM takes seconds to import, where it is at all

        return VllmLocalEngine(
            settings.loaded_model,
            settings.local_args,
            served_as=settings.model,
            context_tokens=settings.context_tokens,
        )
    if settings.engine == "llama-local":
        from service.engine.llama.local import LlamaLocalEngine

        return LlamaLocalEngine(
            Path(settings.loaded_model),
            settings.local_args,
            served_as=settings.model,
            context_tokens=settings.context_tokens,
            shared=settings.several_tenants,
        )
    card = ModelCard(settings.model or DEMO_MODEL, MODEL_CREATED, settings.context_tokens or DEMO_CONTEXT_TOKENS)
    return _open_demo(settings, card)


def _open_demo(settings: Settings, card: ModelCard) -> Engine:
    """The demo engine. It is imported here, as a service with a model needs none of it."""
    from service.engine.demo import DemoEngine

    return DemoEngine(card, settings.demo_tokens_per_second)
