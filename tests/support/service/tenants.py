"""The limits and the tally of a service in this process."""

from service.features.tenants.entrance import CountingEntrance
from service.features.tenants.usage import Tally
from service.responses.service import Service
from store.limits import Limits


def limits_in(service: Service) -> Limits:
    """Its limits in the store."""
    return _entrance_of(service).limiter.limits


def tally_of(service: Service) -> Tally:
    """Its tally."""
    return _entrance_of(service).tally


def _entrance_of(service: Service) -> CountingEntrance:
    assert isinstance(service.tenants.entrance, CountingEntrance)
    return service.tenants.entrance
