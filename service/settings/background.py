"""The settings of background responses: workers, the queue, event logs, webhooks, metrics and traces.

Each is a limit that somebody may have to raise; rules between them are in settings.py.
"""

import binascii
from base64 import b64decode
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from service.settings.core import MIB, SettingsPart
from service.settings.sources import has_exporter
from service.ssrf import PRIVATELY

RENEWALS = 4
"""How often a lease is renewed before it would run out."""

SECRET_PREFIX = "whsec_"
LEAST_SECRET_BYTES = 24
"""As Standard Webhooks has it, whose scheme OpenAI's SDKs verify."""


class BackgroundSettings(SettingsPart):
    """The settings of background responses."""

    worker: bool = True
    """Whether `serve` also works on background responses itself."""
    worker_concurrency: int = Field(32, ge=1, le=10_000)
    """Background responses that one process works on at once."""
    worker_port: int = Field(0, ge=0, le=65535)
    """TCP port on HOST where `harmonium worker` answers /health, /ready and /metrics; 0 opens none."""
    lease_seconds: float = Field(10, ge=0.5, le=3600)
    """How long a worker may go without renewing before another takes its background responses over."""
    max_attempts: int = Field(3, ge=1, le=100)
    """How many workers in a row may die or fail on a background response without progress, before it fails."""
    max_run_seconds: float = Field(3600, gt=0, le=7 * 86_400)
    """For how long workers may have a background response, all together; its time in the queue does not count."""
    max_queued: int = Field(10_000, ge=1)
    """Background responses that may wait in a shard; more are refused with 429. Half of them may have hours
    (completion_window). An eighth more, of either, is kept for tenants with less than a sixteenth of it."""
    background_without_store: bool = False
    """Whether a background response may have `store: false`. It is then kept until its events are deleted, and can't be
    continued."""
    stream_retention_seconds: float = Field(3600, ge=0, le=30 * 86_400)
    """For how long after its end the events of a background response can be streamed again."""
    max_log_bytes: int = Field(1024 * MIB, ge=MIB)
    """The most memory that Redis may hold for the events of a shard's background responses, in bytes. Those that ended
    first are deleted for new ones; those of responses that wait may have half of it, those with hours a quarter."""
    webhook_url: str = ""
    """Where the end of each background response is sent: an http or https URL. Empty sends none. One that begins with
    private+, as private+http://10.0.0.5/hook, may lead to a private, local or otherwise special address."""
    webhook_secret: SecretStr = SecretStr("")
    """The key that signs webhooks: `whsec_` and at least 24 bytes as base64."""
    metrics_key: SecretStr = SecretStr("")
    """The key for /metrics, as a bearer token. Without one, and with API keys, /metrics is refused."""
    traces_url: str = Field("", max_length=2048)
    """Where traces are sent, as OTLP over HTTP: the whole URL, such as http://phoenix:6006/v1/traces. Empty traces
    nothing. OTEL_EXPORTER_OTLP_TRACES_ENDPOINT stands in for it, and OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces
    behind it."""
    traces_headers: SecretStr = SecretStr("")
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
        _check_url(value, "TRACES_HEADERS is for keys")
        if value and not has_exporter():
            raise ValueError(
                "needs OpenTelemetry's exporter, which is not installed; pip install 'harmonium[otel]' does that"
            )
        return value

    @field_validator("webhook_url")
    @classmethod
    def _check_webhook_url(cls, value: str) -> str:
        url = value.removeprefix(PRIVATELY)
        _check_url(url, "webhooks are signed with WEBHOOK_SECRET")
        parts = urlsplit(url)
        _ = parts.port, (parts.hostname or "").encode("idna")  # raise ValueError for a port or a host that can't be one
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _check_webhook_secret(cls, value: SecretStr) -> SecretStr:
        secret = value.get_secret_value()
        if secret and len(signing_key(secret)) < LEAST_SECRET_BYTES:
            raise ValueError(f"should be {SECRET_PREFIX} and at least {LEAST_SECRET_BYTES} bytes as base64")
        return value


def _check_url(url: str, remedy: str) -> None:
    """Raise ValueError for what is neither empty nor the URL of a server; `remedy` says where a key goes."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("should be a URL that begins with http:// or https://")
    if parts.username or parts.password or parts.fragment:
        raise ValueError(f"should have no user, password or fragment; {remedy}")


def signing_key(secret: str) -> bytes:
    """The key that a webhook secret stands for; empty for what is no such secret."""
    if not secret.startswith(SECRET_PREFIX):
        return b""
    try:
        return b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        return b""
