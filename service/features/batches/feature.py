"""Batches in a process: the work on them where background responses are made, and their routes."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import typer
from fastapi import APIRouter

from service.ports import Chore
from service.process import Feature, Offered
from service.responses.service import Service
from store.errors import NewerFormat
from store.history.records import TenantRecords

MOST_SHOWN = 100
"""The most batches that an administrator is shown."""


class BatchesFeature(Feature):
    """Batches."""

    def works(self, service: Service) -> Iterable[Chore]:
        if not service.settings.embedded_worker:
            return ()
        from service.features.batches.running import Batches, endpoints_of
        from service.features.files.inputs import files_of

        batches = Batches(service, files_of(service), endpoints_of(service))
        return (Chore("batches", batches.run, batches.ended),)

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        from service.features.batches import routes

        return (routes.router,)

    async def under_way(self, service: Service) -> Mapping[str, Sequence[object]]:
        from service.features.batches.shapes import BATCHES, decode_batch

        stored, found = TenantRecords(service.store, BATCHES), list[object]()
        for tenant, id in (await stored.under_way())[:MOST_SHOWN]:
            if (record := await stored.get(tenant, id)) is not None:
                with suppress(NewerFormat):
                    shown = decode_batch(record).shown
                    found.append({"tenant": tenant, "id": id, "status": shown.status, "counts": shown.request_counts})
        return {"batches": found}

    def commands(self, app: typer.Typer) -> None:
        from service.features.batches import command

        app.add_typer(command.app, name="")


FEATURE = BatchesFeature()
