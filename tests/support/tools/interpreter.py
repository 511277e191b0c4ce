"""A back end of Python that runs nothing."""

from service.api.outcome import HostedCall, Outcome
from service.api.tools.builtin import python
from service.api.tools.callee import Hosted


class Interpreter:
    """Python that says what it was given."""

    builtin = python(lambda sent, where: "{}", seconds=1, drive="/mnt/data")

    def __init__(self) -> None:
        self.closed = 0
        """How many responses have ended."""

    usable = True

    async def bind(self, tenant: str, tool: Hosted, before: str | None) -> str:
        """One container for all."""
        return "cntr_1"

    def run(self, tenant: str) -> "Interpreter":
        """Itself."""
        self.tenant = tenant
        return self

    async def call(self, call: HostedCall) -> Outcome:
        """Whose code it was, and the code."""
        return Outcome("completed", f"{self.tenant}: {call.arguments}")

    async def aclose(self) -> None:
        """One more response has ended."""
        self.closed += 1
