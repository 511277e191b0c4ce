"""The wire between `harmonium sandbox` and its users: the port's verbs over HTTP, as JSON.

Each verb is a POST of one object to /v1/VERB; files come and go as bodies. A cell may run for longer than a client
should wait: then the answer is 202, and the client asks again, by the name of its call.
"""

import msgspec

from service.sandbox.port import Full, Gone, Limits, NoFile, SandboxError, Unusable

WAIT_SECONDS = 20.0
"""How long one request waits for a cell that runs."""

MAX_BODY_BYTES = 2 << 20
"""The largest object of a request: a cell's code as JSON, and a little more."""

STATUS: dict[type[SandboxError], int] = {Full: 429, Gone: 404, NoFile: 422, Unusable: 503}
"""How a refusal goes over the wire; `Refusal` has its message."""


class Open(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session to have."""

    session: str
    tenant: str
    limits: Limits
    lasting: bool = False


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell to run, or to ask for again."""

    session: str
    call: str
    code: str


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that nobody wants any more."""

    session: str
    call: str


class Of(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session, to be closed or asked for its files."""

    session: str


class OfFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a session. For `write` it stands in the query: the body is the file."""

    session: str
    path: str


class Refusal(msgspec.Struct, frozen=True):
    """The reason of a refusal."""

    message: str
