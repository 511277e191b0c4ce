"""The trace of a piece of work: a span, with facts under OpenTelemetry's names.

Where nothing is traced, as by default, each span is UNTRACED, of which all that can be asked does nothing, and costs
nothing. Nothing here imports OpenTelemetry: a feature does, where a setting wants spans. A span has ids, names, numbers
and times. Never give it what somebody wrote where it doesn't want that (`shows`), and never a key, a
tenant's name or the words of an error.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from types import TracebackType
from typing import Self

from service.errors import ApiError
from store.errors import StoreError, StoreUnavailable

Fact = str | int | float | bool | Sequence[str] | None
"""The value of an attribute of a span; None leaves it out."""

Headers = tuple[tuple[str, str], ...]

SCOPE = "harmonium"
"""The instrumentation scope of the spans, and the prefix of facts that no convention names."""


class SpanSide(Enum):
    """Which side of a call a span is, as OpenTelemetry has it."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2
    PRODUCER = 3
    CONSUMER = 4


class Span:
    """A piece of work that isn't traced, or whose trace isn't sampled. As a context manager it ends with its block."""

    kept = False
    """Whether it is told to anybody: facts that cost something to find needn't be found else."""
    shows = False
    """Whether it wants what was written, too."""

    @property
    def headers(self) -> Headers:
        """The headers that make work elsewhere a part of this span; empty where nothing is traced here."""
        return ()

    def child(
        self,
        name: str,
        kind: SpanSide = SpanSide.INTERNAL,
        facts: Mapping[str, Fact] | None = None,
        *,
        linked: Headers = (),
    ) -> "Span":
        """A part of it, which begins now; `name` has no id. It follows from what it is `linked` to."""
        return self

    def rename(self, name: str) -> None:
        """Rename the span, where its name is known only now."""

    def note(self, facts: Mapping[str, Fact]) -> None:
        """Add to what is said of it."""

    def show_input(self, items: bytes, instructions: str | None = None, *, whole: bool = False) -> None:
        """Show items that a model was given, as JSON, where it `shows` such things. One that is the `whole` around the
        calls of models and tools isn't such a call itself.
        """

    def show_output(self, items: bytes, *, whole: bool = False) -> None:
        """Show items that came of it, as `show_input` does."""

    def fail(self, kind: str, *, fault: bool = True) -> None:
        """Note its error: a code or a class, never words. It is no `fault` where nothing here is to blame."""

    def end(self) -> None:
        """Note that it is over."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and self.kept and not isinstance(error, GeneratorExit):
            self.fail(kind_of(error), fault=is_fault(error))
        self.end()


UNTRACED = Span()

current: ContextVar[Span] = ContextVar("span", default=UNTRACED)
"""The request, or the attempt at a background response, that is being worked on."""


class Tracer:
    """Traces nothing. Where traces are on, service/features/traces/tracing.py has another one."""

    on = False

    def request(self, method: str, parent: Headers) -> Span:
        """The span of a request that begins now, of a trace that its client may have begun."""
        return UNTRACED

    def attempt(self, submitted: Headers, facts: Mapping[str, Fact], *, seconds: float) -> Span:
        """The span of an attempt that began so many seconds ago, linked to where its response was submitted."""
        return UNTRACED

    async def close(self) -> None:
        """Send what waits, within bounds. Spans that end later are lost."""


def conversation(id: str) -> dict[str, Fact]:
    """The facts of which conversation it is: its id, or that of the first response of its tree."""
    return {"gen_ai.conversation.id": id, "session.id": id}


def is_fault(error: BaseException) -> bool:
    """Whether an error is a failure: neither a cancellation nor the caller's mistake."""
    if isinstance(error, ApiError):
        return error.status >= 500
    if isinstance(error, StoreError):
        return isinstance(error, StoreUnavailable)
    return not isinstance(error, asyncio.CancelledError)


def kind_of(error: BaseException) -> str:
    """The name of an error in a span: its code in the API, or its class."""
    if isinstance(error, ApiError):
        return error.code or str(error.status)
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
