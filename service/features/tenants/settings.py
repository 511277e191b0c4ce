"""The settings of tenants: their limits, and how long their usage is known."""

import re
from typing import Annotated

from service.settings.core import CoreSettings
from service.settings.group import parsed_by, shown_as

LIMITS = (
    *(f"max_{what}_per_1_{window}" for window in ("minute", "month") for what in ("requests", "tokens")),
    "max_parallel_responses",
)
"""The limits that a tenant may have: OpenAI's names of rate limits, and others like them."""

MAX_LIMIT = 1_000_000_000
"""The largest limit: a tenant that should have more needs none."""


def parse_limits(text: str) -> dict[str, int]:
    """Limits as `NAME=NUMBER`, with commas between. Raises ValueError."""
    found = dict[str, int]()
    for each in filter(None, map(str.strip, text.split(","))):
        name, _, number = each.partition("=")
        if name not in LIMITS or name in found or not re.fullmatch(r"[0-9]{1,10}", number) or int(number) > MAX_LIMIT:
            raise ValueError(
                f"should be NAME=NUMBER with commas between, each name once: one of {', '.join(LIMITS)}, and a number "
                f"up to {MAX_LIMIT}"
            )
        found[name] = int(number)
    return found


def _show_limits(limits: dict[str, int]) -> str:
    return ",".join(f"{name}={limit}" for name, limit in limits.items())


class TenantSettings(CoreSettings):
    """The limits of tenants, and their usage."""

    heading = "Tenants"

    tenant_limits: Annotated[dict[str, int], parsed_by(parse_limits), shown_as(_show_limits)] = {}
    """Default limits of each tenant, comma-separated, such as
    max_requests_per_1_minute=60,max_tokens_per_1_month=1000000 (all: docs/tenants.md). Empty is no limit."""

    @property
    def has_limits(self) -> bool:
        """Whether tenants may have limits."""
        return self.has_projects or bool(self.tenant_limits)


GROUP = TenantSettings
