"""Passing requests on in a process: engines that do it, and its routes."""

from collections.abc import Iterable

from fastapi import APIRouter

from service.features.proxy.passing import PassingEngine
from service.process import EngineKinds, Feature, Offered


class ProxyFeature(Feature):
    """Requests that are passed on."""

    def engines(self, kinds: EngineKinds) -> None:
        kinds.server_engine = PassingEngine

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        if not offered.passes_on:
            return ()
        from service.features.proxy import routes

        return (routes.router,)


FEATURE = ProxyFeature()
