"""All routes that the application has: their methods and paths, with parameters in them."""

from service.app import all_routes

Routes = list[tuple[str, str]]


def served() -> Routes:
    """Every route."""
    return sorted((route.method, route.path) for route in all_routes())
