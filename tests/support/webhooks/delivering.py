"""A process that delivers webhooks until it is killed. Run by tests/features/webhooks/test_webhooks.py."""

import asyncio
import sys

from service.features.webhooks.deliver import Deliverer, DeliveryTiming, Receiver
from service.process import Settings
from store.history.history import ConversationHistoryStore
from store.jobs.outbox import Outbox
from store.redis.connection import connect


async def main(redis_url: str, prefix: str, webhook_url: str, secret: str, seconds: float) -> None:
    """Deliver from the store with the prefix, holding a webhook for twice `seconds`."""
    settings = Settings.model_validate({"webhook_url": f"private+{webhook_url}", "webhook_secret": secret})
    outbox = Outbox(ConversationHistoryStore(connect(redis_url), prefix=prefix))
    timing = DeliveryTiming(margin_seconds=seconds)
    await Deliverer(outbox, Receiver(settings, seconds=seconds), retry_seconds=60, timing=timing).deliver_for_ever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], float(sys.argv[5])))
