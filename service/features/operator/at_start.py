"""The warnings of a start: the doctor's own rows about the Redis, and conversations that no key reads."""

import logging
from urllib.parse import parse_qs, urlsplit

from service.commands.arguments import many
from service.logs import event
from service.settings.core import DEFAULT_TENANT, CoreSettings, is_loopback
from service.settings.sources import variable
from store.doctor.doctor import Expected, Level, judge
from store.doctor.examine import examine
from store.guard import free_bytes
from store.history.history import ConversationHistoryStore
from store.history.listing import Merged
from store.redis import address

logger = logging.getLogger(__name__)

MOST_COUNTED = 1_000
"""How many conversations are counted before a start: some 20 ms."""


async def warn_of_redis(settings: CoreSettings) -> list[str]:
    """A WARNING for each row of the doctor about the Redis that isn't ok. Raises StoreUnavailable."""
    warnings = list[str]()
    terms = settings.redis_prefix, settings.shards, settings.store_timeout_seconds
    examined = await examine(str(settings.redis_url), *terms)
    for each in judge(expected_of(settings), examined):
        if each.level is not Level.OK:
            message = f"the Redis, {each.what}: {each.now}"
            event(logger, logging.WARNING, message, node=each.node or None, reason=each.why, remedy=each.remedy)
            warnings.append(message)
    return warnings


async def warn_of_default(settings: CoreSettings, store: ConversationHistoryStore) -> list[str]:
    """A WARNING where conversations were made without keys, and no key reads them now. Raises StoreUnavailable."""
    if not settings.has_keys or DEFAULT_TENANT in settings.static_tenants:
        return []
    listed = Merged(store, "trees", DEFAULT_TENANT, ascending=False, after=None)
    number = len(await listed.some(MOST_COUNTED))
    if not number:
        return []
    counted = many(number, "conversation") if number < MOST_COUNTED else f"{number:,} or more conversations"
    belong, them = ("belongs", "it") if number == 1 else ("belong", "them")
    message = f"{counted} in the store {belong} to the tenant {DEFAULT_TENANT}, and no key belongs to that tenant"
    remedy = f"to read {them}, add {DEFAULT_TENANT}:KEY to {variable('api_keys')}"
    event(logger, logging.WARNING, message, remedy=remedy)
    return [message]


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
