"""Limits on the wire: each a number, or null for none. What is not sent is not changed."""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.api.decoding import ABSENT, decode, decoder_of
from service.errors import invalid_value, missing, unsupported
from service.settings.core import LIMITS, MAX_LIMIT
from service.tenants.limits import WHOLE_PROJECT, Limit

ID = f"rl-{WHOLE_PROJECT}"
"""The id of a project's limits."""


class LimitShown(Limit, frozen=True, kw_only=True, omit_defaults=False):
    """The limits of a project, which are of all models together."""

    id: str = ID
    model: str = WHOLE_PROJECT
    object: Literal["project.rate_limit"] = "project.rate_limit"


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    max_requests_per_1_minute: int | UnsetType | None = UNSET
    max_tokens_per_1_minute: int | UnsetType | None = UNSET
    max_requests_per_1_month: int | UnsetType | None = UNSET
    max_tokens_per_1_month: int | UnsetType | None = UNSET
    max_parallel_responses: int | UnsetType | None = UNSET
    max_requests_per_1_day: Raw = ABSENT
    batch_1_day_max_input_tokens: Raw = ABSENT
    max_audio_megabytes_per_1_minute: Raw = ABSENT
    max_images_per_1_minute: Raw = ABSENT


_SENT = decoder_of(_Sent)
_ELSEWHERE = (
    "max_requests_per_1_day",
    "batch_1_day_max_input_tokens",
    "max_audio_megabytes_per_1_minute",
    "max_images_per_1_minute",
)
"""OpenAI's limits that aren't there here."""


def read_limits(body: bytes | Raw, where: str = "") -> dict[str, int | None]:
    """The limits that are sent, by their names. Raises InvalidRequest."""
    sent, prefix = decode(body, _SENT, where), f"{where}." if where else ""
    for name in _ELSEWHERE:
        if getattr(sent, name) != ABSENT:
            raise unsupported(prefix + name, "…", "There is no such limit here. Leave it out.")
    found = {name: getattr(sent, name) for name in LIMITS if getattr(sent, name) is not UNSET}
    if not found:
        raise missing(prefix + LIMITS[0], f"Give it, or another one of {', '.join(LIMITS)}.")
    for name, number in found.items():
        if number is not None and not 0 <= number <= MAX_LIMIT:
            raise invalid_value(prefix + name, number, f"It should be 0 to {MAX_LIMIT}, or null for no limit.")
    return found
