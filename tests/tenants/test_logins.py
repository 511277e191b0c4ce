"""Wrong keys in the audit log: few of them, and how many there were."""

import msgspec

from service.settings.settings import Settings
from service.tenants.audit import SECONDS, FailedLogins
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.registry import Registry
from tests.support.waiting import until


async def test_one_a_minute_is_noted_with_how_many_there_were_besides(settings: Settings) -> None:
    history = ConversationHistoryStore(connect(settings.redis_url), prefix=settings.key_prefix)
    registry, now = Registry(history), [0.0]
    failed = FailedLogins(registry, lambda: now[0])

    async def noted(number: int) -> list[dict[str, object]]:
        async def enough() -> bool:
            return len(await registry.entries()) >= number

        await until(enough, 10)
        return [msgspec.json.decode(each.record)["login.failed"] for each in await registry.entries()]

    for _ in range(100):
        failed.note("req_1", "10.0.0.1")
    assert [each["others"] for each in await noted(1)] == [0]
    now[0] = SECONDS
    for _ in range(100):
        failed.note("req_2", "10.0.0.2")
    assert [(each["id"], each["others"]) for each in await noted(2)] == [("req_2", 99), ("req_1", 0)]
    await history.close()
