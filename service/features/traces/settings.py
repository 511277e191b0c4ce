"""The settings of traces."""

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import Annotated
from urllib.parse import unquote

from pydantic import Field, SecretStr, field_validator

from service.settings.core import CoreSettings
from service.settings.group import MAX_SHOWN_CHARS, Secret, shown_as, with_extra
from service.settings.sources import PREFIX, SettingsError, StandIn
from service.settings.urls import check_url, mask_secrets

URL, HEADERS, RATIO = f"{PREFIX}TRACES_URL", f"{PREFIX}TRACES_HEADERS", f"{PREFIX}TRACES_RATIO"

_HEADER = re.compile(r"[\w!#$%&'*+.^`|~-]+[ \t]*=[ !#-+\--:<-\[\]-~]*", re.ASCII)
"""A header that OpenTelemetry's SDK can read: it would log the whole of another one, whose value may be a key."""


def has_exporter() -> bool:
    """Whether the exporter of traces is installed."""
    try:
        distribution("opentelemetry-exporter-otlp-proto-http")
    except PackageNotFoundError:
        return False
    return True


def from_otel(variables: Mapping[str, str | None]) -> dict[str, StandIn]:
    """Our settings of traces that aren't given, as OpenTelemetry's own variables have them. Its headers may be keys for
    its URL, so they stand in only where its URL does. Raises SettingsError.

    Sources: OpenTelemetry's specification, configuration/sdk-environment-variables and protocol/exporter.
    """
    found = _receiver(variables) if URL not in variables else {}
    if (found or variables.get(URL)) and RATIO not in variables:
        found |= _share(variables)
    return found


def _receiver(variables: Mapping[str, str | None]) -> dict[str, StandIn]:
    """Its URL and the headers for it. None where its variables turn traces off, or ask for a protocol that this service
    can't do (gRPC), or can't do as it is installed: clusters put them into every pod.
    """
    given = {name: value for name, value in variables.items() if value and name.startswith("OTEL_")}
    url = _first(given, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if not url and (base := given.get("OTEL_EXPORTER_OTLP_ENDPOINT")):
        url = "OTEL_EXPORTER_OTLP_ENDPOINT", f"{base.rstrip('/')}/v1/traces"
    protocol = given.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or given.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http")
    off = given.get("OTEL_SDK_DISABLED", "").lower() == "true" or given.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp"
    off = off or (RATIO not in variables and given.get("OTEL_TRACES_SAMPLER", "").lower() == "always_off")
    if not url or off or not protocol.startswith("http") or not has_exporter():
        return {}
    headers = _first(given, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
    return {"traces_url": url} | ({"traces_headers": headers} if headers and HEADERS not in variables else {})


def _share(variables: Mapping[str, str | None]) -> dict[str, StandIn]:
    """The share that its sampler keeps; by default that of its argument. Raises SettingsError."""
    sampler = variables.get("OTEL_TRACES_SAMPLER") or "traceidratio"
    kind = sampler.lower().removeprefix("parentbased_")
    if kind in ("always_on", "always_off"):
        return {"traces_ratio": ("OTEL_TRACES_SAMPLER", "1" if kind == "always_on" else "0")}
    if kind != "traceidratio":
        raise SettingsError(
            f"OTEL_TRACES_SAMPLER={sampler[:MAX_SHOWN_CHARS]}: should be always_on, always_off or traceidratio, or one "
            f"of these after parentbased_; or set {RATIO}"
        )
    share = _first(variables, "OTEL_TRACES_SAMPLER_ARG")
    return {"traces_ratio": share} if share else {}


def _first(variables: Mapping[str, str | None], *names: str) -> StandIn | None:
    """The first of these variables that isn't empty."""
    return next(((name, value) for name in names if (value := variables.get(name))), None)


class TraceSettings(CoreSettings):
    """Where traces are sent, and what is in them."""

    heading = "Traces"

    traces_url: Annotated[str, shown_as(mask_secrets)] = Field("", max_length=2048, repr=False)
    """The URL for traces, as OTLP over HTTP, such as http://phoenix:6006/v1/traces. Default:
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT; without these, no traces."""
    traces_headers: Secret = SecretStr("")
    """Headers for traces: `name=value`, comma-separated, percent-encoded. With OpenTelemetry's URL
    only, the default is OTEL_EXPORTER_OTLP_HEADERS."""
    traces_ratio: float = Field(1, ge=0, le=1)
    """The sampled share of traces that begin here; a client's `traceparent` decides about its own. Default:
    OTEL_TRACES_SAMPLER with OTEL_TRACES_SAMPLER_ARG, or 1."""
    traces_contents: bool = False
    """Whether traces contain texts: input, instructions, output, and the tools' arguments and answers."""

    @field_validator("traces_url")
    @classmethod
    def _check_traces_url(cls, value: str) -> str:
        check_url(value, "TRACES_HEADERS is for keys")
        if value and not has_exporter():
            raise ValueError(f"needs OpenTelemetry's exporter, which is not installed; {with_extra('otel')}")
        return value

    @field_validator("traces_headers")
    @classmethod
    def _check_traces_headers(cls, value: SecretStr) -> SecretStr:
        for place, each in enumerate(map(str.strip, value.get_secret_value().split(",")), start=1):
            if each and not (_HEADER.fullmatch(each) and (text := unquote(each)).isascii() and text.isprintable()):
                raise ValueError(f"entry {place} is no header; write name=value, percent-encoded")
        return value

    @classmethod
    def stand_ins(cls, variables: Mapping[str, str | None]) -> dict[str, StandIn]:
        return super().stand_ins(variables) | from_otel(variables)


GROUP = TraceSettings
