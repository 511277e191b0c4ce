"""Webhooks in a process: the chore that delivers them, where there is a receiver."""

from service.features.webhooks.settings import WebhookSettings
from service.ports import Chore
from service.process import Feature, Parts


class WebhooksFeature(Feature):
    """Webhooks."""

    def compose(self, parts: Parts) -> None:
        settings = WebhookSettings.of(parts.settings)
        if not settings.webhook_url:
            return
        from service.features.webhooks.deliver import RETRY_SECONDS, Deliverer, Receiver
        from store.jobs.outbox import Outbox

        count = parts.metrics.webhooks.labels
        outbox, receiver = Outbox(parts.store), Receiver(settings)
        deliverer = Deliverer(outbox, receiver, RETRY_SECONDS, count=lambda outcome: count(outcome).inc())
        parts.announces = True
        parts.chores.append(Chore("webhooks", deliverer.deliver_for_ever, deliverer.wake))


FEATURE = WebhooksFeature()
