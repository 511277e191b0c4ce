"""The engines that the settings name: opened, and changed when their file is read again."""

import logging
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import cast

from service.engine.chat.servers import ByChat, LlamaByChat, VllmByChat
from service.engine.demo import DemoEngine
from service.engine.engines import Engines, Member, names_of, salt_of
from service.engine.llama.local import LlamaLocalEngine
from service.engine.llama.servers import Llama
from service.engine.port import AUTO, MODEL_CREATED, SERVER, Engine, EngineUnavailable, ModelCard
from service.engine.servers.engine import PROBE_SECONDS, WAIT_SECONDS, Access, ServersEngine
from service.engine.servers.experimental import Sglang, Tensorrt
from service.engine.servers.kind import ServerKind
from service.engine.servers.speech import Disarming
from service.engine.vllm.local import VllmLocalEngine
from service.engine.vllm.servers import Vllm
from service.logs import event
from service.responses.service import Service
from service.settings.core import CoreSettings
from service.settings.engines import DEMO, ENGINE_URLS, EngineEntry, ListedEngine

logger = logging.getLogger(__name__)

DEMO_MODEL = "gpt-oss-20b"

DEMO_CONTEXT_TOKENS = 131_072
"""The model that the demo engine stands in for where nothing names an engine, and its context's length."""


def open_engines(settings: CoreSettings, engine: Engine | None = None) -> Engines:
    """The engines that the settings name, or the one that is given."""
    if engine is None and settings.engines:
        return Engines(_members(settings, {}))
    stood_in_for = names_of(DEMO_MODEL, ()) if engine is None and settings.stands_in else ()
    return Engines([Member(engine or open_engine(settings), aliases=(*stood_in_for, *settings.model_aliases))])


async def reread(service: Service, taken: bool) -> None:
    """Replace the engines after the files were read again, if they were `taken`."""
    service.metrics.rereads.labels("taken" if taken else "refused").inc()
    settings = service.tenants.keys.settings
    if not taken or not settings.listed_engines:
        return
    known = {member.key: member for member in service.engine.members}
    members = _members(settings, known)
    try:
        await service.engine.change(members)
        for listed, member in zip(settings.listed_engines, members, strict=True):
            if listed.key in known and listed.listed.kind != DEMO:
                await cast(ServersEngine, member.engine).change(_access(settings, listed))
    except EngineUnavailable as error:
        event(logger, logging.ERROR, "the engines stay as they were", reason=str(error))


def _members(settings: CoreSettings, known: Mapping[Hashable, Member]) -> list[Member]:
    """The engines of the file, those that are `known` by their keys as they are."""
    members: list[Member] = []
    for engine in settings.listed_engines:
        listed, key = engine.listed, engine.key
        opened = known[key].engine if key in known else _open(settings, engine)
        members.append(Member(opened, listed.name, engine.model, listed.aliases, listed.max_output_tokens, key))
    return members


def _open(settings: CoreSettings, engine: ListedEngine) -> Engine:
    """An engine of the file: the demo engine, or one of servers."""
    listed = engine.listed
    if listed.kind == DEMO:
        return _open_demo(settings, engine.model, listed.context_tokens)
    tenant, shared = next(iter(settings.tenants)), settings.several_tenants
    kinds: dict[str, Callable[[], ServerKind]] = {
        "vllm": lambda: Vllm(Disarming()),
        "sglang": Sglang,
        "tensorrt": lambda: Tensorrt(shared=shared, salt=None if shared else salt_of(settings.key_prefix, tenant, "")),
        "llama": lambda: Llama(shared=shared),
        "chat": lambda: ByChat(shared=shared),
    }
    markup = listed.markup
    if markup == SERVER:
        kinds |= {"vllm": VllmByChat, "llama": lambda: LlamaByChat(shared=shared)}
        markup = AUTO
    kind, access = kinds[listed.kind](), _access(settings, engine)
    context, sees = listed.context_tokens, listed.sees
    return ServersEngine(kind, access, model=engine.model, context_tokens=context, markup=markup, sees=sees)


def _access(settings: CoreSettings, engine: ListedEngine) -> Access:
    """How to reach the servers of an engine."""
    return Access(
        urls=engine.urls,
        weights=engine.listed.weights,
        api_key=engine.api_key.get_secret_value(),
        connections=engine.listed.connections or max(settings.max_concurrent_requests, settings.worker_concurrency),
        kv_tokens=engine.listed.kv_tokens or 0,
        wait_seconds=WAIT_SECONDS,
        probe_seconds=PROBE_SECONDS,
    )


def open_engine(settings: CoreSettings) -> Engine:
    """The engine that ENGINE names."""
    name, context = settings.model, settings.context_tokens
    if settings.engine in ENGINE_URLS:
        listed = EngineEntry(name, settings.engine, context_tokens=context)
        return _open(settings, ListedEngine(listed, settings.engine_urls, settings.engine_api_key))
    model, args = settings.loaded_model, settings.local_args
    if settings.engine == "vllm-local":
        return VllmLocalEngine(model, args, served_as=name, context_tokens=context)
    if settings.engine == "llama-local":
        shared = settings.several_tenants
        return LlamaLocalEngine(Path(model), args, served_as=name, context_tokens=context, shared=shared)
    return _open_demo(settings, name or DEMO, context)


def _open_demo(settings: CoreSettings, model: str, context_tokens: int) -> Engine:
    card = ModelCard(model, MODEL_CREATED, context_tokens or DEMO_CONTEXT_TOKENS, real=False)
    return DemoEngine(card, settings.demo_tokens_per_second)
