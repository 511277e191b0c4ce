"""The sources of settings: the command line, the environment and a `.env` file, and variables that others put there.

Kubernetes puts variables for every Service of a namespace into its pods: those of one named `harmonium`, or
`harmonium-worker`, look like ours. They are passed over, by their exact forms alone: a misspelt limit would be no
limit.

Secrets may be in files, as Docker and Kubernetes mount them: `HARMONIUM_X_FILE` names a file with the value of
`HARMONIUM_X`. Line breaks at its ends don't count, and where there may be several keys one between them counts as a
comma. Never show the content of such a file: its path says enough.

Sizes and times may have a unit: `4GiB`, `512MB`, `15m`, `30d`. A bare number is in the unit of the setting's name, as
every setting that ends with `_bytes`, `_seconds` or `_days` takes them.
"""

import os
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from dotenv import dotenv_values
from pydantic import ByteSize, TypeAdapter

from service.settings.core import ENV_FILE, PREFIX

CLIENTS = (f"{PREFIX}URL", f"{PREFIX}CLIENT_KEY", f"{PREFIX}PROFILE")
"""The variables of the commands that talk to a service (commands/client/profile.py). A service doesn't read them."""

OTEL = {
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "TRACES_HEADERS",
    "OTEL_TRACES_SAMPLER_ARG": "TRACES_RATIO",
}
"""OpenTelemetry's variables that stand in for settings of ours as they are."""

_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(rf"{PREFIX}(\w+_)?PORT")
"""A name that Kubernetes gives to an address; where it is one of ours too, the value says whose it is."""

_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def is_service_link(name: str, value: str | None) -> bool:
    """Whether Kubernetes has put a variable into the environment, for a Service."""
    if _SERVICE_LINK.fullmatch(name):
        return True
    return _SERVICE_ADDRESS.fullmatch(name) is not None and _ADDRESS.match(value or "") is not None


def service_links() -> list[str]:
    """The variables in the environment that are passed over."""
    return sorted(name for name, value in os.environ.items() if is_service_link(name, value))


def env_file() -> Path | None:
    """The `.env` file that is read, if there is one."""
    path = Path(ENV_FILE).absolute()
    return path if path.is_file() else None


class EnvFileError(Exception):
    """The `.env` file can't be read. The message names it and the reason."""


def _read_env_file() -> dict[str, str | None]:
    """The variables that the `.env` file sets; empty where there is none. Raises EnvFileError."""
    place = Path(ENV_FILE).absolute()
    try:
        return {name.upper(): value for name, value in dotenv_values(ENV_FILE).items()}
    except UnicodeDecodeError:
        raise EnvFileError(f"{place} is no text in UTF-8; save it as such") from None
    except OSError as error:
        raise EnvFileError(f"{place} can't be read: {error.strerror}; let this user read it, or move it") from error


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


class Given:
    """The values as they were given, and by which name: an option, a variable, or a variable in the file."""

    def __init__(self, overrides: Mapping[str, object]) -> None:
        """`overrides` are those of the command line, by the setting's name. Raises EnvFileError."""
        self._overrides = overrides
        environment: dict[str, str | None] = {
            name.upper(): value for name, value in os.environ.items() if not is_service_link(name.upper(), value)
        }
        file = _read_env_file()
        self._environment, self._file = from_otel(environment) | environment, from_otel(file) | file

    @property
    def variables(self) -> Iterable[str]:
        """The names of all variables that are set, ours and others."""
        return {*self._environment, *self._file}

    def value(self, name: str) -> object:
        """The raw value of the setting `name`; None where none was given."""
        return self._overrides[name] if name in self._overrides else self._set_to(PREFIX + name.upper())

    def files(self) -> dict[str, Path]:
        """The files that secrets are to be read from, by the settings' names. An option is not read from a file.

        Raises SecretError for a secret that is given twice.
        """
        found: dict[str, Path] = {}
        for name in SECRETS:
            path, variable = self._set_to(file_variable(name)), PREFIX + name.upper()
            if not path or name in self._overrides:
                continue
            if self._set_to(variable):
                raise SecretError(f"{variable} and {file_variable(name)} are both given; leave one of them out")
            found[name] = Path(path).expanduser().absolute()
        return found

    def _set_to(self, variable: str) -> str | None:
        return self._environment.get(variable, self._file.get(variable))

    def place(self, name: str) -> str:
        """The name by which the setting `name` was given, for errors."""
        variable = PREFIX + name.upper()
        if name in self._overrides:
            return f"--{name.replace('_', '-')}"
        if name in SECRETS and self._set_to(file_variable(name)):
            return f"{file_variable(name)}={self._set_to(file_variable(name))}"
        in_file = variable not in self._environment and variable in self._file
        return f"{variable} in {ENV_FILE}" if in_file else variable


# --- secrets in files -----------------------------------------------------------------------------------------

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


# --- sizes and times ------------------------------------------------------------------------------------------

DAY_SECONDS = 86_400

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": DAY_SECONDS, "w": 7 * DAY_SECONDS}
_TIME = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_SECONDS)})", re.IGNORECASE)
_BARE = re.compile(r"\s*[+-]?[\d._]+(e[+-]?\d+)?\s*", re.IGNORECASE)
_SIZE = re.compile(r"\s*\d+(\.\d+)?\s*([kmgtp](ib|b)?|b)\s*", re.IGNORECASE)
_BYTES: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)

EXAMPLES = {"_bytes": "4GiB", "_seconds": "15m", "_days": "30d"}
"""Examples of values with a unit, by the ending of the setting's name."""


def unit_of(name: str) -> str | None:
    """The end of a setting's name that is its unit, where it has one."""
    return next((end for end in EXAMPLES if name.endswith(end)), None)


def in_unit(name: str, value: object) -> object:
    """`value` in the unit of the setting `name`; a value that is no text with a unit stays. Raises ValueError."""
    unit = unit_of(name)
    if unit is None or not isinstance(value, str) or _BARE.fullmatch(value):
        return value
    return size(value) if unit == "_bytes" else _time(value, DAY_SECONDS if unit == "_days" else 1)


def with_unit(count: int) -> str:
    """A number of bytes as it may be written: with the largest unit that it is a multiple of."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{unit}"
    return str(count)


def size(text: str) -> int:
    """A number of bytes, perhaps with a unit. Raises ValueError."""
    if not _SIZE.fullmatch(text):  # pydantic would pass over what follows
        raise ValueError("should be a number of bytes, or one with a unit: KiB, MiB, GiB, TiB, or kB, MB, GB, TB")
    return int(_BYTES.validate_python(text.strip()))


def _time(text: str, unit_seconds: int) -> float:
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise ValueError(f"should be a number, or one with a unit: {', '.join(_SECONDS)}")
    value = float(found[1]) * _SECONDS[found[2].lower()] / unit_seconds
    return int(value) if value.is_integer() else value
