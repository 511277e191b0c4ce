"""All routes that the application has: their methods and paths, with parameters in them."""

from collections.abc import Iterator

from fastapi.routing import APIRoute

from service.app import all_routers

Routes = list[tuple[str, str]]


def all_routes() -> Iterator[APIRoute]:
    """Every route, as FastAPI has it."""
    return (route for router in all_routers() for route in router.routes if isinstance(route, APIRoute))


def served() -> Routes:
    """The methods and paths of every route."""
    return sorted((method, route.path) for route in all_routes() for method in route.methods)
