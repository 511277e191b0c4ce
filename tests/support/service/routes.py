"""All routes that the application has: their methods and paths, with parameters in them."""

import re
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import Match

from service.app import routed
from service.web import admin, routes
from service.web.dialect import DIALECTS

ROOMS = (routes, admin)

Routes = list[tuple[str, str]]


def served() -> Routes:
    """Every route, whichever of FastAPI's versions has them in what form."""
    app = routed().routes

    def has(method: str, path: str) -> bool:
        path = re.sub(r"\{([a-z_]+)(:path)?\}", r"\1", path)
        scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": []}
        return any(route.matches(scope)[0] is Match.FULL for route in app)

    modules = [import_module(f"{room.__name__}.{each.name}") for room in ROOMS for each in iter_modules(room.__path__)]
    found = {
        (method, prefix + cast(APIRoute, route).path)
        for module in modules
        for route in getattr(module, "router", APIRouter()).routes
        for prefix in ("", *(dialect.prefix for dialect in DIALECTS))
        for method in cast(APIRoute, route).methods or ()
        if has(method, prefix + cast(APIRoute, route).path)
    }
    return sorted(found)
