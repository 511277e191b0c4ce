"""The sources of settings: the command line's options, the environment, and a `.env` file in the working directory.

pydantic-settings reads them; each source remembers what it was given, so that a refusal names the option, the variable
or the file. Kubernetes puts variables for every Service of a namespace into its pods: those of one named `harmonium`,
or `harmonium-worker`, look like ours. They are passed over, by their exact forms alone: a misspelt limit would be no
limit.

Secrets may be in files, as Docker and Kubernetes mount them: `HARMONIUM_X_FILE` names a file with the value of
`HARMONIUM_X`. Line breaks at its ends don't count, and where there may be several keys one between them counts as a
comma. Never show the content of such a file: its path says enough.
"""

import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dotenv.parser import parse_stream
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
)

PREFIX = "HARMONIUM_"
ENV_FILE = ".env"

CLIENTS = (f"{PREFIX}URL", f"{PREFIX}CLIENT_KEY", f"{PREFIX}PROFILE")
"""The variables of the commands that talk to a service (commands/client/profile.py). A service doesn't read them."""

_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(rf"{PREFIX}(\w+_)?PORT")
"""A name that Kubernetes gives to an address; where it is one of ours too, the value says whose it is."""

_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

_OURS = re.compile(rf"\s*(export\s+)?{PREFIX}", re.IGNORECASE)
"""The beginning of a line about a setting in `.env`."""


def is_service_link(name: str, value: str | None) -> bool:
    """Whether Kubernetes has put a variable into the environment, for a Service."""
    if _SERVICE_LINK.fullmatch(name):
        return True
    return _SERVICE_ADDRESS.fullmatch(name) is not None and _ADDRESS.match(value or "") is not None


def service_links() -> list[str]:
    return sorted(name for name, value in os.environ.items() if is_service_link(name, value))


def env_file() -> Path | None:
    """The `.env` file that is read, if there is one."""
    path = Path(ENV_FILE).absolute()
    return path if path.is_file() else None


class SettingsError(Exception):
    """The settings can't be used. The message is one line: each variable, the reason, the way out."""


def variable(name: str) -> str:
    """The environment variable of the setting `name`."""
    return PREFIX + name.upper()


def file_variable(name: str) -> str:
    """The environment variable that names the file of the setting `name`."""
    return f"{variable(name)}_FILE"


def environment(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


@contextmanager
def without(names: Sequence[str]) -> Generator[None]:
    """Hide these variables of the environment within the block, from a library that would read them itself."""
    hidden = environment(names)
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


StandIn = tuple[str, str]
"""The name and the value of a variable of somebody else."""


class SourcedSettings(BaseSettings):
    """Settings that these sources read."""

    @classmethod
    def stand_ins(cls, variables: Mapping[str, str | None]) -> dict[str, StandIn]:
        """Values of settings that aren't given, from somebody else's variables. `variables` are all that are given,
        options as those of their settings. Raises SettingsError.
        """
        return {}


class EnvironmentSource(EnvSettingsSource):
    """The variables of the environment, without those that Kubernetes put there."""

    def __init__(self, group: type[SourcedSettings]) -> None:
        super().__init__(group)
        given = self.env_vars.items()
        self.env_vars = {name: value for name, value in given if not is_service_link(name.upper(), value)}


class EnvFileSource(DotEnvSettingsSource):
    def __init__(self, group: type[SourcedSettings]) -> None:
        """Raises SettingsError."""
        place = Path(ENV_FILE).absolute()
        try:
            if place.is_file():
                _refuse_unreadable(place)
            super().__init__(group)
        except UnicodeDecodeError:
            raise SettingsError(f"{place} is no text in UTF-8; save it as such") from None
        except OSError as error:
            reason = f"{place} can't be read: {error.strerror}"
            raise SettingsError(f"{reason}; let this user read it, or move it") from error


def _refuse_unreadable(place: Path) -> None:
    """Raise SettingsError for a line about a setting that can't be read: it would be passed over."""
    with place.open(encoding="utf-8-sig") as file:
        for each in parse_stream(file):
            if each.error and _OURS.match(each.original.string):
                raise SettingsError(f"{place}, line {each.original.line}: should be NAME=VALUE, with each quote closed")


@dataclass(frozen=True)
class InFile:
    """The mark of a setting that may be in a file, as secrets are."""

    renewed: bool = False
    """Whether the file is read again on SIGHUP: other secrets are in connections, or shared between processes."""
    several: bool = False
    """Whether it may have several keys."""


def in_files(group: type[SourcedSettings]) -> dict[str, InFile]:
    fields = group.model_fields.items()
    return {name: mark for name, field in fields for mark in field.metadata if isinstance(mark, InFile)}


class SecretFileSource(PydanticBaseSettingsSource):
    """Files that hold a secret each, by the settings' names."""

    def __init__(self, group: type[SourcedSettings], paths: Mapping[str, Path]) -> None:
        super().__init__(group)
        self.paths = paths

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str, str, bool]:
        (mark,) = (each for each in field.metadata if isinstance(each, InFile))
        path = self.paths[field_name]
        return _read(path, f"{file_variable(field_name)}={path}", several=mark.several), field_name, False

    def __call__(self) -> dict[str, object]:
        fields = self.settings_cls.model_fields
        return {name: self.get_field_value(fields[name], name)[0] for name in self.paths}


class Sources:
    """The sources of one reading, each of which goes before the next, and the files that secrets are in."""

    def __init__(self, in_order: tuple[PydanticBaseSettingsSource, ...], paths: Mapping[str, Path]) -> None:
        self.in_order, self.paths = in_order, paths

    def value(self, name: str) -> object:
        """The value of the setting `name` as somebody may be shown it; None where there is none."""
        return None

    def place(self, name: str) -> str:
        """The name by which the setting `name` was given, for errors."""
        return f"{file_variable(name)}={self.paths[name]}" if name in self.paths else variable(name)


class GivenSources(Sources):
    """The sources of a service that starts."""

    def __init__(self, group: type[SourcedSettings], options: Mapping[str, object]) -> None:
        """`options` are those of the command line, by the setting's name. Raises SettingsError."""
        self.options = options
        self._environment, self._file = EnvironmentSource(group), EnvFileSource(group)
        secrets = SecretFileSource(group, dict(self._find_paths(in_files(group))))
        chosen = InitSettingsSource(group, dict(options))
        self._stand_ins = group.stand_ins(self.variables | {variable(name): f"{options[name]}" for name in options})
        others = InitSettingsSource(group, {name: value for name, (_, value) in self._stand_ins.items()})
        super().__init__((chosen, secrets, self._environment, self._file, others), secrets.paths)

    @property
    def variables(self) -> dict[str, str | None]:
        """All variables that are set, ours and others."""
        both = {**self._file.env_vars, **self._environment.env_vars}
        return {name.upper(): value for name, value in both.items()}

    def _find_paths(self, names: Iterable[str]) -> Iterator[tuple[str, Path]]:
        """An option is not read from a file. Raises SettingsError for a secret that is given twice."""
        for name in names:
            path = self._set_to(file_variable(name))
            if not path or name in self.options:
                continue
            if self._set_to(variable(name)):
                both = f"{variable(name)} and {file_variable(name)}"
                raise SettingsError(f"{both} are both given; leave one of them out")
            yield name, Path(path).expanduser().absolute()

    def _set_to(self, name: str) -> str | None:
        return self._environment.env_vars.get(name.lower(), self._file.env_vars.get(name.lower()))

    def value(self, name: str) -> object:
        _, other = self._stand_ins.get(name, ("", None))
        return self.options.get(name, self._set_to(variable(name)) or other)

    def place(self, name: str) -> str:
        if name in self.options:
            return option(name)
        key = variable(name).lower()
        if name in self._stand_ins and name not in self.paths:
            return self._stand_ins[name][0]
        in_file = name not in self.paths and key not in self._environment.env_vars and key in self._file.env_vars
        return super().place(name) + f" in {ENV_FILE}" * in_file


def option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


MAX_SECRET_BYTES = 8 * 1024 * 1024
"""More than the most keys that there may be have together."""


def _read(path: Path, place: str, *, several: bool) -> str:
    try:
        if path.exists() and not path.is_file():
            raise SettingsError(f"{place} is not a file; mount the secret as one, or name the file in it")
        with path.open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{place} can't be read: {error.strerror}; name a file that this user may read") from error
    if len(content) > MAX_SECRET_BYTES:
        raise SettingsError(
            f"{place} has more than {MAX_SECRET_BYTES:,} bytes, so it is no secret; name the right file"
        )
    try:
        text = content.decode().strip("\r\n")
    except UnicodeDecodeError:
        raise SettingsError(f"{place} is no text in UTF-8; write the secret as text") from None
    if not text:
        raise SettingsError(f"{place} is empty; write the secret into it, or leave the variable out")
    lines = text.splitlines()
    if len(lines) > 1 and not several:
        raise SettingsError(f"{place} has {len(lines):,} lines; write the secret on one")
    return ",".join(lines)
