"""A back end of Python that runs nothing."""

from service.api.outcome import HostedCall, Outcome
from service.api.tools.builtin import python
from service.api.tools.callee import Hosted
from service.tools.port import Call


class Interpreter:
    """Python that says what it was given."""

    builtin = python(lambda sent, where: "{}", seconds=1, drive="/mnt/data")

    usable = True

    async def bind(self, tenant: str, tool: Hosted, before: str | None) -> str:
        """One container for all."""
        return "cntr_1"

    def run(self, tenant: str) -> Call:
        """A caller that says whose code it was, and the code."""

        async def call(call: HostedCall) -> Outcome:
            return Outcome("completed", f"{tenant}: {call.arguments}")

        return call
