"""Secrets in files: each setting that holds one can be named by a file, as Docker and Kubernetes mount them.

One rule for all: `HARMONIUM_X_FILE` names a file that has what `HARMONIUM_X` would have. Line breaks at its ends don't
count, and where there may be several keys one between them counts as a comma. Never show what is in such a file: its
path says enough.
"""

from collections.abc import Mapping
from pathlib import Path

from service.settings.core import PREFIX

SECRETS = (
    *("api_keys", "engine_api_key", "redis_url", "seal_keys", "webhook_secret", "metrics_key", "sandbox_key"),
    *("search_key", "admin_key", "traces_headers"),
)
"""The settings that hold secrets."""

RENEWED = ("api_keys", "metrics_key", "admin_key")
"""Those whose files are read again on SIGHUP: the others are in connections, or shared between processes."""

LISTS = ("api_keys", "seal_keys")
"""Those that may have several keys."""

MAX_SECRET_BYTES = 8 * 1024 * 1024
"""More than the most keys that there may be have together."""


class SecretError(Exception):
    """A secret's file can't be used. The message names the variable, the path and the reason."""


def read_secrets(files: Mapping[str, Path]) -> dict[str, str]:
    """The text of each setting's file. Raises SecretError."""
    return {name: _read(name, path, f"{file_variable(name)}={path}") for name, path in files.items()}


def file_variable(name: str) -> str:
    """The environment variable that names the file of the setting `name`."""
    return f"{PREFIX}{name.upper()}_FILE"


def _read(name: str, path: Path, place: str) -> str:
    try:
        if path.exists() and not path.is_file():
            raise SecretError(f"{place} is not a file; mount the secret as one, or name the file in it")
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretError(f"{place} can't be read: {error.strerror}; name a file that this user may read") from error
    if len(content) > MAX_SECRET_BYTES:
        raise SecretError(f"{place} has more than {MAX_SECRET_BYTES:,} bytes, so it is no secret; name the right file")
    try:
        text = content.decode().strip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(f"{place} is no text in UTF-8; write the secret as text") from None
    if not text:
        raise SecretError(f"{place} is empty; write the secret into it, or leave the variable out")
    lines = text.splitlines()
    if len(lines) > 1 and name not in LISTS:
        raise SecretError(f"{place} has {len(lines):,} lines; write the secret on one")
    return ",".join(lines)
