"""The container of `code_interpreter`, in which its code runs: one by its id, or any."""

from typing import Any, Literal

import msgspec

from service.decoding import decode
from service.errors import missing, unsupported

MEMORY = {"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}
"""The memory limits that a request may ask for, in bytes. A sandbox gives no more than its own limit."""

MemoryLimit = Literal["1g", "4g", "16g", "64g"]


class Policy(msgspec.Struct):
    """The network that code may reach; only `disabled` is served, so nothing else is read."""

    type: str


class _Auto(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto"]
    file_ids: list[str] | None = None
    memory_limit: MemoryLimit | None = None
    network_policy: Policy | None = None


class _CodeInterpreter(msgspec.Struct, forbid_unknown_fields=True):
    """The tool as sent."""

    type: str
    container: str | _Auto | None = None
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None


class Wanted(msgspec.Struct, frozen=True):
    """The container that a request wants: the one with an `id`, or one that may be new."""

    id: str | None = None
    memory_limit: MemoryLimit | None = None

    def encoded(self) -> str:
        """The container as the options of a tool."""
        return msgspec.json.encode(self).decode()


def read_container(sent: msgspec.Raw, where: str) -> str:
    """The options of a `code_interpreter`, as Wanted. Raises InvalidRequest."""
    tool = decode(sent, _CodeInterpreter, where)
    container = tool.container
    if container is None:
        raise missing(f"{where}.container", "Give the id of a container, or {'type': 'auto'}.")
    if tool.allowed_callers is not None and "direct" not in tool.allowed_callers:
        raise unsupported(f"{where}.allowed_callers", tool.allowed_callers, "Leave it out, or add 'direct'.")
    if isinstance(container, str):
        return Wanted(container).encoded()
    check_files(container.file_ids, f"{where}.container.file_ids")
    check_policy(container.network_policy, f"{where}.container.network_policy")
    return Wanted(None, container.memory_limit).encoded()


def check_policy(policy: Policy | None, where: str) -> None:
    """Raise InvalidRequest where code is to have a network."""
    if policy is not None and policy.type != "disabled":
        raise unsupported(f"{where}.type", policy.type, "Code has no network here. Give 'disabled', or leave it out.")


def check_files(ids: Any, where: str) -> None:
    """Raise InvalidRequest for files that are stored elsewhere."""
    if ids:
        raise unsupported(where, ids, "Upload files to a container: POST /v1/containers/{container_id}/files.")


def wanted(options: str) -> Wanted:
    """The container of some options."""
    return msgspec.json.decode(options, type=Wanted)
