"""Which service a command talks to, with which key and model: from options, the environment, or a profile.

Profiles are in `~/.config/harmonium/config.toml` (`$XDG_CONFIG_HOME` if set):

    default = "work"

    [profiles.work]
    url = "https://harmonium.example.com"
    key_file = "~/.config/harmonium/work.key"
    model = "gpt-oss-20b"

A key is never an option, as every user of a machine can read the list of processes; nor is it in that file, which
people show to each other.

The last response that was asked for here lies in `~/.local/state/harmonium/last.json` (`$XDG_STATE_HOME` if set), so
that `ask -c` can continue it: one id for each service, and nothing that anybody said.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from service.commands.arguments import EXIT_USAGE
from service.features.client.errors import ClientError

URL, KEY, PROFILE = "HARMONIUM_URL", "HARMONIUM_CLIENT_KEY", "HARMONIUM_PROFILE"
DEFAULT_URL = "http://127.0.0.1:8000"
MAX_FILE_BYTES = 65_536
MAX_KEY_CHARS = 512

_KEY = re.compile(r"[\x21-\x7e]+")

_LAST = ("XDG_STATE_HOME", ".local/state", "last.json")

MAX_SERVICES = 32
"""The most services whose last response is remembered; the least recently used is forgotten first."""


class WrittenProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A profile as the file has it."""

    url: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    model: str | None = None


class _Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    default: str | None = None
    profiles: dict[str, WrittenProfile] = {}


@dataclass(frozen=True)
class Profile:
    """A service: its URL without `/v1`, the key for it and the model to ask for, None where there is none."""

    url: str
    key: str | None = field(repr=False)
    model: str | None


def read_profile(url: str | None, name: str | None, key_env: str | None, environment: Mapping[str, str]) -> Profile:
    """The profile from the options, the environment and the file: an option beats a variable, and that the file.

    A URL that is given goes with no key of a profile: it would be sent to somebody else. Raises ClientError.
    """
    given = url if url is not None else (environment.get(URL) or None) if name is None else None
    if given is not None and name is None:
        chosen = WrittenProfile()
    else:
        chosen = _choose(environment, name if name is not None else environment.get(PROFILE) or None)
    if (variable := key_env if key_env is not None else chosen.key_env) is not None:
        key = environment.get(variable)
        if not key:
            raise _wrong(f"{variable} is not set; it should have the key")
    elif chosen.key_file is not None:
        key = _read(Path(chosen.key_file)).strip()
    else:
        key = environment.get(KEY) or None
    if key is not None and not (_KEY.fullmatch(key) and len(key) <= MAX_KEY_CHARS):
        raise _wrong(f"the key should have 1 to {MAX_KEY_CHARS} visible characters of ASCII, and no spaces")
    address = given if given is not None else chosen.url or DEFAULT_URL
    return Profile(_check_url(address), key, chosen.model)


def _file(environment: Mapping[str, str], variable: str, otherwise: str, name: str) -> Path:
    return Path(environment.get(variable) or Path.home() / otherwise) / "harmonium" / name


def _choose(environment: Mapping[str, str], name: str | None) -> WrittenProfile:
    """The profile with that name, or else the default one; an empty one where none is meant."""
    file = _file(environment, "XDG_CONFIG_HOME", ".config", "config.toml")
    if not file.exists():
        if name is not None:
            raise _wrong(f"there is no profile {name!r}, because there is no {file}")
        return WrittenProfile()
    try:
        config = msgspec.toml.decode(_read(file), type=_Config)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _wrong(f"{file}: {error}") from None
    wanted = name if name is not None else config.default
    if wanted is None:
        return WrittenProfile()
    if wanted not in config.profiles:
        raise _wrong(f"{file} has no [profiles.{wanted}]")
    return config.profiles[wanted]


def _read(file: Path) -> str:
    try:
        with file.expanduser().open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise _wrong(f"{file} has more than {MAX_FILE_BYTES} bytes")
        return content.decode()
    except (OSError, ValueError, RuntimeError) as error:  # no text, no path, no home
        raise _wrong(f"can't read {file}: {error}") from None


def _check_url(url: str) -> str:
    """A URL of a service, without `/v1` and a slash at its end."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # as a request does: no label may be empty or too long
        sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
        sound = sound and not (parts.query or parts.fragment or parts.username or parts.password)
    except ValueError:
        sound = False
    if not sound or not url.isprintable() or not url.isascii() or " " in url:
        shown = "what is given" if {"@", "?", "#"} & set(url) else repr(url)  # a key may be in it
        raise _wrong(f"{shown} is not the URL of a service, such as {DEFAULT_URL}")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _wrong(message: str) -> ClientError:
    return ClientError(message, EXIT_USAGE)


def last_of(url: str, environment: Mapping[str, str]) -> str:
    """The id to continue. Raises ClientError where there is none."""
    id = _remembered_values(_file(environment, *_LAST)).get(url)
    if id is None:
        raise ClientError(f"this machine knows no response of {url} yet; name one with --from")
    return id


def keep_last(url: str, id: str, environment: Mapping[str, str]) -> None:
    """Remember the id. Raises OSError."""
    file = _file(environment, *_LAST)
    known = _remembered_values(file)
    known.pop(url, None)
    kept = dict([*known.items(), (url, id)][-MAX_SERVICES:])
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_bytes(msgspec.json.encode(kept))
    new.replace(file)


def _remembered_values(file: Path) -> dict[str, str]:
    """The remembered values; none where the file isn't there or isn't ours any more."""
    try:
        with file.open("rb") as opened:
            return msgspec.json.decode(opened.read(MAX_FILE_BYTES), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
