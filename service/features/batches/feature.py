"""Batches in a process: the work on them where background responses are made, and their routes."""

from collections.abc import Iterable, Mapping
from typing import Any

import typer
from fastapi import APIRouter

from service.features.files.inputs import StoredAttachments
from service.ports import Chore
from service.process import Feature, Offered, features
from service.responses.service import Service
from service.web.dialect import Translate
from store.files.files import Files


class BatchesFeature(Feature):
    """Batches."""

    def works(self, service: Service) -> Iterable[Chore]:
        if not service.settings.worker:
            return ()
        from service.features.batches.running import Batches

        batches = Batches(service, files_of(service), _translations(service))
        return (Chore("batches", batches.run, batches.ended),)

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        from service.features.batches import routes

        return (routes.router,)

    def state(self, service: Service, admission: Any) -> Mapping[str, object]:
        from service.features.batches.door import BatchDoor

        return {"batches": BatchDoor(service, files_of(service), tuple(_translations(service)))}

    def commands(self, app: typer.Typer) -> None:
        from service.features.batches import command

        app.add_typer(command.app, name="")


def files_of(service: Service) -> Files:
    attachments = service.attachments
    assert isinstance(attachments, StoredAttachments)  # there are no batches without the feature of files
    return attachments.files


def _translations(service: Service) -> dict[str, Translate]:
    return {
        endpoint: translate
        for feature in features()
        for endpoint, translate in feature.translations(service.settings).items()
    }


FEATURE = BatchesFeature()
