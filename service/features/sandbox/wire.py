"""The wire between `harmonium sandbox` and its users: the port's verbs over HTTP, as JSON.

Each verb is a POST of one object to /v1/VERB; files come and go as bodies. A cell may run for longer than a client
should wait: then the answer is null, and the client asks again, by the name of its call.
"""

import msgspec

from service.features.sandbox.port import Full, NoFile, SandboxError, SessionGone, SessionLimits, Unusable

WAIT_SECONDS = 20.0
"""How long one request waits for a cell that runs."""

MAX_BODY_BYTES = 2 << 20
"""The largest object of a request: a cell's code as JSON, and a little more."""

STATUS: dict[type[SandboxError], int] = {Full: 429, SessionGone: 404, NoFile: 422, Unusable: 503}
"""How a refusal goes over the wire; `Refusal` has its message."""


class Of(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session, to be closed or asked for its files."""

    session: str


class Open(Of, frozen=True):
    """A session to have."""

    tenant: str
    limits: SessionLimits
    lasting: bool = False


class Stop(Of, frozen=True):
    """A call that nobody wants any more."""

    call: str


class RunCell(Stop, frozen=True):
    """A cell to run, or to ask for again."""

    code: str


class OfFile(Of, frozen=True):
    """A file of a session. For `write` it stands in the query: the body is the file."""

    path: str


class Refusal(msgspec.Struct, frozen=True):
    """The reason of a refusal."""

    message: str
