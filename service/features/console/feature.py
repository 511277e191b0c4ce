"""The console in a process: its page, and its routes."""

from collections.abc import Iterable

from fastapi import APIRouter

from service.process import Feature, Offered


class ConsoleFeature(Feature):
    """The console."""

    places = {"console": ("/console", "your conversations in a browser")}

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        from service.features.console import health, listing, page, tools, trees, turns

        parts = [page, listing, tools, trees, turns]
        return [part.router for part in ([*parts, health] if offered.administers else parts)]


FEATURE = ConsoleFeature()
