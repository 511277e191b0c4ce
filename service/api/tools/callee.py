"""A tool that the caller runs, as a call of it is addressed and what its content must match."""

from typing import Literal

import msgspec

FUNCTIONS = "functions"
"""The namespace of tools that name none."""


Kind = Literal["function", "custom"]


Choice = Literal["auto", "none", "required"]


class Callee(msgspec.Struct, frozen=True):
    """A tool that the caller runs: a function, or a custom tool, whose input is a text.

    `content` is the format that a call's content must match (grammar/tags.py), None where nothing is enforced.
    With `wrapped` the input of a custom tool stands in the content as the one member, `input`, of a JSON object.
    """

    name: str
    kind: Kind = "function"
    namespace: str | None = None
    content: str | None = None
    wrapped: bool = False

    @property
    def recipient(self) -> str:
        """Whom a call of it is addressed to in Harmony."""
        return f"{self.namespace or FUNCTIONS}.{self.name}"
