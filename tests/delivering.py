"""A process that delivers webhooks until it is killed. Run by tests/test_webhooks.py."""

import asyncio
import sys

from service import webhooks
from service.receiver import Receiver
from service.settings import Settings
from service.webhooks import Deliverer
from store.connection import connect
from store.history import ConversationHistoryStore
from store.outbox import Outbox


async def main(redis_url: str, prefix: str, webhook_url: str, secret: str, seconds: float) -> None:
    """Deliver from the store with the prefix, holding a webhook for twice `seconds`."""
    webhooks.HOLD_MARGIN_SECONDS = seconds
    settings = Settings.model_validate(
        {
            "webhook_url": webhook_url,
            "webhook_secret": secret,
            "webhook_allow_private": True,
            "webhook_seconds": seconds,
        }
    )
    outbox = Outbox(ConversationHistoryStore(connect(redis_url), prefix=prefix))
    await Deliverer(outbox, Receiver(settings), retry_seconds=60).deliver_for_ever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], float(sys.argv[5])))
