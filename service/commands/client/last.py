"""The last response that was asked for here, so that `ask -c` can continue it: one id for each service.

It lies in `~/.local/state/harmonium/last.json` (`$XDG_STATE_HOME` if set), and holds nothing that anybody said.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from service.commands.client.errors import ClientError

MAX_SERVICES = 32
"""Of how many services the last response is known; the one that was used first is forgotten first."""

MAX_FILE_BYTES = 65_536


def last_of(url: str, environment: Mapping[str, str]) -> str:
    """The id to continue. Raises ClientError where there is none."""
    id = _read(_file(environment)).get(url)
    if id is None:
        raise ClientError(f"nothing was asked of {url} from here yet; name a response with --from")
    return id


def keep_last(url: str, id: str, environment: Mapping[str, str]) -> None:
    """Remember the id. Raises OSError."""
    file = _file(environment)
    known = _read(file)
    known.pop(url, None)
    kept = dict([*known.items(), (url, id)][-MAX_SERVICES:])
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_bytes(msgspec.json.encode(kept))
    new.replace(file)


def _file(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(folder) / "harmonium" / "last.json"


def _read(file: Path) -> dict[str, str]:
    """What is known; nothing where the file isn't there or isn't ours any more."""
    try:
        with file.open("rb") as opened:
            return msgspec.json.decode(opened.read(MAX_FILE_BYTES), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
