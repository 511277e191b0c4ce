"""The settings of sandboxes: where Python that a model wrote runs, and what its sessions may take."""

from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from service.settings.core import check_key

MIB = 1 << 20

LOCAL = "local"
UNIX = "unix://"
LEAST_KEY_CHARS = 16


class SandboxSettings(BaseModel):
    """The settings of sessions of Python. The text below each setting is its help and its documentation."""

    model_config = ConfigDict(defer_build=True)

    sandbox: str = Field("", max_length=2048)
    """The sandbox for Python that a model writes: `local`, processes of this machine; or where a `harmonium sandbox`
    listens, as unix:///path or http://host:port. Empty has none."""
    sandbox_key: Annotated[SecretStr, AfterValidator(partial(check_key, least=LEAST_KEY_CHARS))] = SecretStr("")
    """The key that `harmonium sandbox` asks for. It needs one of 16 characters or more, unless it listens on a Unix
    socket."""
    sandbox_listen: str = Field("unix:///run/harmonium/sandbox.sock", max_length=2048)
    """Where `harmonium sandbox` listens: unix:///path or http://address:port."""
    sandbox_sessions: int = Field(32, ge=1, le=512)
    """Sessions that one sandbox has at once. For one more an idle one gives its place up; while all run code, more are
    refused."""
    sandbox_tenant_sessions: int = Field(8, ge=1, le=512)
    """How many of them one tenant may have, in the same way."""
    sandbox_memory_bytes: int = Field(1024 * MIB, ge=64 * MIB, le=1024 * 1024 * MIB)
    """The memory of a session, beside what all of them share, in bytes."""
    sandbox_disk_bytes: int = Field(256 * MIB, ge=MIB, le=1024 * 1024 * MIB)
    """The most bytes that the files of a session have together."""

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
