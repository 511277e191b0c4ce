"""The settings of the sandboxes in which Python that a model wrote runs."""

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from service.settings.core import CoreSettings
from service.settings.group import Secret, key_of
from service.settings.sources import PREFIX
from service.settings.units import MIB

LOCAL = "local"
UNIX = "unix://"
LEAST_SANDBOX_KEY_CHARS = 16


class SandboxSettings(CoreSettings):
    """Sessions of Python."""

    heading = "Sandbox"

    sandbox: str = Field("", max_length=2048)
    """The sandbox for the model's Python: `local`, processes of this machine; or the address of a `harmonium
    sandbox`, as unix:///path or http://host:port. Empty is none."""
    sandbox_key: Annotated[Secret, key_of(LEAST_SANDBOX_KEY_CHARS)] = SecretStr("")
    """The key of `harmonium sandbox`, 16 characters or more; needed except on a Unix socket."""
    sandbox_listen: str = Field("unix:///run/harmonium/sandbox.sock", max_length=2048)
    """The address of `harmonium sandbox`: unix:///path or http://address:port."""
    sandbox_sessions: int = Field(32, ge=1, le=512)
    """Sessions of one sandbox at once. A new session replaces an idle one; if all run code, the new one is refused."""
    sandbox_tenant_sessions: int = Field(8, ge=1, le=512)
    """Sessions of one tenant at once, by the same rule."""
    sandbox_memory_bytes: int = Field(1024 * MIB, ge=64 * MIB, le=1024 * 1024 * MIB)
    """The memory of a session beside the shared part, in bytes."""
    sandbox_disk_bytes: int = Field(256 * MIB, ge=MIB, le=1024 * 1024 * MIB)
    """The most bytes of a session's files together."""

    @field_validator("sandbox")
    @classmethod
    def _check_sandbox(cls, value: str) -> str:
        if value not in ("", LOCAL) and not is_place(value):
            raise ValueError("should be local, unix:///path or http://host:port")
        return value

    @field_validator("sandbox_listen")
    @classmethod
    def _check_sandbox_listen(cls, value: str) -> str:
        if not is_place(value) or value.startswith("https:"):
            raise ValueError("should be unix:///path or http://address:port")
        return value

    @model_validator(mode="after")
    def _check_sandboxes(self) -> Self:
        if self.sandbox == "local" and self.workers > 1:
            raise ValueError(
                f"{PREFIX}SANDBOX=local gives each process sessions that the others don't know, and {PREFIX}WORKERS="
                f"{self.workers}; run `harmonium sandbox` and set {PREFIX}SANDBOX to it, or set {PREFIX}WORKERS to 1"
            )
        if self.sandbox_tenant_sessions > self.sandbox_sessions:
            raise ValueError(
                f"{PREFIX}SANDBOX_TENANT_SESSIONS={self.sandbox_tenant_sessions} is more than all "
                f"{PREFIX}SANDBOX_SESSIONS={self.sandbox_sessions}; lower the first, or raise the second"
            )
        return self


def is_place(text: str) -> bool:
    """Whether a sandbox can listen there: a path of a Unix socket, or a host with a port."""
    if text.startswith(UNIX):
        return text.startswith(f"{UNIX}/") and "\0" not in text
    try:
        parts = urlsplit(text)
        found = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False
    return found and not (parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"))


GROUP = SandboxSettings
