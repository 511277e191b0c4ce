"""Containers on the wire: sessions in which code runs, with an id and files; and the one that a tool names.

Source of the keys: openai 3.54's `types/container_*_response.py` and `types/containers/`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.api.tools.callee import Callers, check_callers
from service.decoding import decode
from service.errors import missing, not_served

MAX_NAME_CHARS = 256
MAX_FILES = 20
"""The most files that a container is made with."""

MAX_MINUTES = 20
"""The longest time for which a container may be idle, in minutes."""

MEMORY = {"1g": 1 << 30, "4g": 4 << 30, "16g": 16 << 30, "64g": 64 << 30}
"""The memory limits that a request may ask for, in bytes. A sandbox gives no more than its own limit."""

MemoryLimit = Literal["1g", "4g", "16g", "64g"]


class Policy(msgspec.Struct):
    """The network for code; only `disabled` is supported."""

    type: str


class ExpiresAfter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time after which an idle container expires."""

    minutes: Annotated[int, Meta(ge=1, le=MAX_MINUTES)] = MAX_MINUTES
    anchor: Literal["last_active_at"] = "last_active_at"


class NetworkPolicy(msgspec.Struct, frozen=True):
    """The network for code: none."""

    type: Literal["disabled"] = "disabled"


class ContainerResource(msgspec.Struct, frozen=True):
    """A container."""

    id: str
    created_at: int
    name: str
    status: Literal["running", "expired"]
    expires_after: ExpiresAfter
    last_active_at: int
    memory_limit: MemoryLimit | None
    network_policy: NetworkPolicy = NetworkPolicy()
    object: Literal["container"] = "container"


class ContainerDeleted(msgspec.Struct, frozen=True):
    """A deleted container."""

    id: str
    object: Literal["container.deleted"] = "container.deleted"
    deleted: bool = True


class ContainerFile(msgspec.Struct, frozen=True):
    """A file of a container; `source` is its first writer, the user by a request or the assistant by code."""

    id: str
    container_id: str
    created_at: int
    bytes: int
    path: str
    source: Literal["user", "assistant"]
    object: Literal["container.file"] = "container.file"


class ContainerFileDeleted(msgspec.Struct, frozen=True):
    """A deleted file."""

    id: str
    object: Literal["container.file.deleted"] = "container.file.deleted"
    deleted: bool = True


class NewContainer(msgspec.Struct, forbid_unknown_fields=True):
    """A new container, as sent."""

    name: Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
    expires_after: ExpiresAfter | None = None
    file_ids: Annotated[list[str], Meta(max_length=MAX_FILES)] | None = None
    memory_limit: MemoryLimit | None = None
    network_policy: Policy | None = None
    skills: Any = None


def read_new(body: bytes) -> NewContainer:
    """The container that a request asks for. Raises InvalidRequest."""
    sent = decode(body, NewContainer)
    if sent.skills:
        raise not_served("skills", sent.skills, "This service has none. Leave it out.")
    check_policy(sent.network_policy, "network_policy")
    return sent


# --- the container of a `code_interpreter`, in which its code runs ---


class _Auto(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto"]
    file_ids: Annotated[list[str], Meta(max_length=MAX_FILES)] | None = None
    memory_limit: MemoryLimit | None = None
    network_policy: Policy | None = None


class _CodeInterpreter(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    container: str | _Auto | None = None
    allowed_callers: Callers = None


class WantedContainer(msgspec.Struct, frozen=True):
    """The container that a request wants: the one with an `id`, or one that may be new, and then has copies of files
    with these ids.
    """

    id: str | None = None
    memory_limit: MemoryLimit | None = None
    file_ids: tuple[str, ...] = ()

    def encode(self) -> str:
        """The container as the options of a tool."""
        return msgspec.json.encode(self).decode()


def read_container(sent: msgspec.Raw, where: str) -> str:
    """The options of a `code_interpreter`, as Wanted. Raises InvalidRequest."""
    tool = decode(sent, _CodeInterpreter, where)
    container = tool.container
    if container is None:
        raise missing(f"{where}.container", "Give the id of a container, or {'type': 'auto'}.")
    check_callers(tool.allowed_callers, where)
    if isinstance(container, str):
        return WantedContainer(container).encode()
    check_policy(container.network_policy, f"{where}.container.network_policy")
    return WantedContainer(None, container.memory_limit, tuple(container.file_ids or ())).encode()


def check_policy(policy: Policy | None, where: str) -> None:
    """Raise InvalidRequest where code is to have a network."""
    if policy is not None and policy.type != "disabled":
        raise not_served(f"{where}.type", policy.type, "Code has no network here. Give 'disabled', or leave it out.")


def container_of(options: str) -> WantedContainer:
    """The container of some options."""
    return msgspec.json.decode(options, type=WantedContainer)
