"""Responses made without HTTP, by the assembly that every door calls, and without limits."""

import time
from contextlib import AsyncExitStack

from service.api.request import CreateRequest
from service.api.response import Response
from service.background.submit import submit
from service.responses.make import Maker, Queued, Ran, make
from service.responses.run import Taken
from service.responses.service import Caller, Service


async def _unlimited(resources: AsyncExitStack, model: str, id: str, *, reads: int, writes: int) -> None:
    return None


def maker_of(service: Service, caller: Caller) -> Maker:
    """The maker of a caller's requests."""
    return Maker(service, caller, _unlimited, since=time.monotonic())


async def queue_response(service: Service, caller: Caller, request: CreateRequest) -> str:
    """The id of a background response, once it is queued."""
    maker = maker_of(service, caller)
    async with AsyncExitStack() as resources:
        made = await make(maker, lambda: request, resources)
        assert isinstance(made, Queued)
        return (await submit(maker, made)).response.id


async def make_response(service: Service, caller: Caller, request: CreateRequest) -> Response:
    """A response in the foreground, once it has ended."""
    async with AsyncExitStack() as resources:
        made = await make(maker_of(service, caller), lambda: request, resources)
        assert isinstance(made, Ran)
        await made.driver.make(Unheard())
    assert made.driver.response is not None
    return made.driver.response


class Unheard:
    """An outlet that nobody reads."""

    def put(self, taken: Taken) -> bool:
        return True

    async def room(self) -> None:
        """See Outlet."""

    async def settle(self) -> None:
        """See Outlet."""
