"""Trajectories in a process: what turns note for them, their routes, and their commands."""

from collections.abc import Iterable

import typer
from fastapi import APIRouter

from service.features.trajectories.settings import TrajectorySettings
from service.process import Feature, Offered, Parts


class TrajectoriesFeature(Feature):
    """Trajectories."""

    def compose(self, parts: Parts) -> None:
        parts.keeps_ids = TrajectorySettings.of(parts.settings).trajectories

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        from service.features.trajectories import bringing, routes

        return (routes.router, bringing.router)

    def commands(self, app: typer.Typer) -> None:
        from service.features.trajectories import command, replay

        app.add_typer(command.app, name="")
        app.add_typer(replay.app, name="")


FEATURE = TrajectoriesFeature()
