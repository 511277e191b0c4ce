"""The settings of traces."""

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from service.settings.group import Secret, SettingsGroup, shown_as
from service.settings.sources import has_exporter
from service.settings.urls import check_url, mask_secrets


class TraceSettings(SettingsGroup):
    """Where traces are sent, and what is in them."""

    heading = "Traces"

    traces_url: Annotated[str, shown_as(mask_secrets)] = Field("", max_length=2048, repr=False)
    """Where traces are sent, as OTLP over HTTP: the whole URL, such as http://phoenix:6006/v1/traces. Empty traces
    nothing. OTEL_EXPORTER_OTLP_TRACES_ENDPOINT stands in for it, and OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces
    behind it."""
    traces_headers: Secret = SecretStr("")
    """Headers with which traces are sent: `name=value`, comma-separated, values percent-encoded.
    OTEL_EXPORTER_OTLP_TRACES_HEADERS and OTEL_EXPORTER_OTLP_HEADERS stand in for it."""
    traces_ratio: float = Field(1, ge=0, le=1)
    """The share of traces that is kept, of those that begin here: a client's `traceparent` says itself whether its
    trace is. OTEL_TRACES_SAMPLER_ARG stands in for it."""
    traces_contents: bool = False
    """Whether traces hold what was written: input, instructions, output, and what tools were given and answered."""

    @field_validator("traces_url")
    @classmethod
    def _check_traces_url(cls, value: str) -> str:
        check_url(value, "TRACES_HEADERS is for keys")
        if value and not has_exporter():
            raise ValueError(
                "needs OpenTelemetry's exporter, which is not installed; pip install 'harmonium[otel]' does that"
            )
        return value
