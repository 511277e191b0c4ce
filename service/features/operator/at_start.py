"""The warnings of a start: the doctor's own rows about the Redis, and conversations that no key reads."""

import logging
from urllib.parse import parse_qs, urlsplit

from service.logs import event
from service.settings.core import DEFAULT_TENANT, CoreSettings, is_loopback
from service.settings.sources import variable
from store.doctor.doctor import Expected, Level, judge
from store.doctor.examine import examine
from store.guard import free_bytes
from store.history.history import ConversationHistoryStore
from store.history.listing import TreeListing
from store.redis import address

logger = logging.getLogger(__name__)


async def warn_of_redis(settings: CoreSettings) -> None:
    """A WARNING for each row of the doctor about the Redis that isn't ok. Raises StoreUnavailable."""
    terms = settings.redis_prefix, settings.shards, settings.store_timeout_seconds
    examined = await examine(str(settings.redis_url), *terms)
    for each in judge(expected_of(settings), examined):
        if each.level is not Level.OK:
            message = f"the Redis, {each.what}: {each.now}"
            event(logger, logging.WARNING, message, node=each.node or None, reason=each.why, remedy=each.remedy)


async def warn_of_default(settings: CoreSettings, store: ConversationHistoryStore) -> None:
    """A WARNING where conversations were made without keys, and no key reads them now. Raises StoreUnavailable."""
    if DEFAULT_TENANT not in settings.tenants and await TreeListing(store, DEFAULT_TENANT).some(1):
        message = f"conversations in the store belong to the tenant {DEFAULT_TENANT}, and no key belongs to that tenant"
        remedy = f"to read them, add {DEFAULT_TENANT}:KEY to {variable('api_keys')}"
        event(logger, logging.WARNING, message, remedy=remedy)


def expected_of(settings: CoreSettings) -> Expected:
    """The settings' expectations of the Redis."""
    found = address.parse(settings.redis_url or "redis://localhost")
    parts = [urlsplit(url) for url in found.urls]
    folder = None if settings.redis_url else settings.data_dir
    return Expected(
        found.kind,
        settings.shards,
        settings.max_bytes,
        log_bytes=settings.max_event_log_bytes,
        embedded=folder is not None,
        local=all(part.scheme == "unix" or is_loopback(part.hostname or "localhost") for part in parts),
        disk_bytes=free_bytes(folder) if folder is not None and folder.exists() else None,
        replicas=settings.store_replicas,
        password=bool(parts[0].password or "password" in parse_qs(parts[0].query)),
    )
