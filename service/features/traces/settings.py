"""The settings of traces."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from service.settings.core import CoreSettings
from service.settings.group import Secret, shown_as, with_extra
from service.settings.sources import PREFIX
from service.settings.urls import check_url, mask_secrets

OTEL = {
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "TRACES_HEADERS",
    "OTEL_TRACES_SAMPLER_ARG": "TRACES_RATIO",
}
"""OpenTelemetry's variables that stand in for settings of ours as they are."""


def has_exporter() -> bool:
    """Whether the exporter of traces is installed."""
    try:
        distribution("opentelemetry-exporter-otlp-proto-http")
    except PackageNotFoundError:
        return False
    return True


def from_otel(values: Mapping[str, str | None]) -> dict[str, str]:
    """Our settings of traces as OpenTelemetry's own variables have them, by name.

    Empty where they turn traces off, or ask for a protocol that this service can't do (gRPC), or can't do as it is
    installed: clusters put them into every pod. Sources: OpenTelemetry's specification,
    configuration/sdk-environment-variables and protocol/exporter.
    """
    given = {name.upper(): value for name, value in values.items() if value and name.upper().startswith("OTEL_")}
    url = given.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    if not url and (base := given.get("OTEL_EXPORTER_OTLP_ENDPOINT")):
        url = f"{base.rstrip('/')}/v1/traces"
    protocol = given.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or given.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http")
    off = given.get("OTEL_SDK_DISABLED", "").lower() == "true" or given.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp"
    if not url or off or not protocol.startswith("http") or not has_exporter():
        return {}
    found = {f"{PREFIX}{ours}": given[name] for name, ours in OTEL.items() if name in given}
    if (headers := given.get("OTEL_EXPORTER_OTLP_HEADERS")) is not None:
        found.setdefault(f"{PREFIX}TRACES_HEADERS", headers)
    return found | {f"{PREFIX}TRACES_URL": url}


class TraceSettings(CoreSettings):
    """Where traces are sent, and what is in them."""

    heading = "Traces"

    traces_url: Annotated[str, shown_as(mask_secrets)] = Field("", max_length=2048, repr=False)
    """The URL for traces, as OTLP over HTTP, such as http://phoenix:6006/v1/traces. Default:
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT; without these, no traces."""
    traces_headers: Secret = SecretStr("")
    """Headers for traces: `name=value`, comma-separated, percent-encoded. Default: OTEL_EXPORTER_OTLP_HEADERS."""
    traces_ratio: float = Field(1, ge=0, le=1)
    """The sampled share of traces that begin here; a client's `traceparent` decides about its own. Default:
    OTEL_TRACES_SAMPLER_ARG, or 1."""
    traces_contents: bool = False
    """Whether traces contain texts: input, instructions, output, and the tools' arguments and answers."""

    @field_validator("traces_url")
    @classmethod
    def _check_traces_url(cls, value: str) -> str:
        check_url(value, "TRACES_HEADERS is for keys")
        if value and not has_exporter():
            raise ValueError(f"needs OpenTelemetry's exporter, which is not installed; {with_extra('otel')}")
        return value

    @classmethod
    def stand_ins(cls, variables: Mapping[str, str | None]) -> dict[str, str]:
        return super().stand_ins(variables) | from_otel(variables)


GROUP = TraceSettings
