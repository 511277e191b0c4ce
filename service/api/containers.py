"""Containers on the wire: sessions in which code runs, with an id and files.

Source of the keys: openai 3.51's `types/container_*_response.py` and `types/containers/`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.api.tools.container import MemoryLimit, Policy, check_files, check_policy
from service.decoding import decode

MAX_NAME_CHARS = 256
MAX_MINUTES = 20
"""The longest time for which a container may be idle, in minutes."""


class ExpiresAfter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a container may be idle."""

    minutes: Annotated[int, Meta(ge=1, le=MAX_MINUTES)] = MAX_MINUTES
    anchor: Literal["last_active_at"] = "last_active_at"


class NetworkPolicy(msgspec.Struct, frozen=True):
    """The network that code reaches: none."""

    type: Literal["disabled"] = "disabled"


class ContainerResource(msgspec.Struct, frozen=True):
    """A container as it is shown."""

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
    """A container that is no longer there."""

    id: str
    object: Literal["container.deleted"] = "container.deleted"
    deleted: bool = True


class ContainerFile(msgspec.Struct, frozen=True):
    """A file of a container; its source is whoever wrote it first, the user by a request or the assistant by code."""

    id: str
    container_id: str
    created_at: int
    bytes: int
    path: str
    source: Literal["user", "assistant"]
    object: Literal["container.file"] = "container.file"


class ContainerFileDeleted(msgspec.Struct, frozen=True):
    """A file that is no longer there."""

    id: str
    object: Literal["container.file.deleted"] = "container.file.deleted"
    deleted: bool = True


class NewContainer(msgspec.Struct, forbid_unknown_fields=True):
    """A container to be made, as sent."""

    name: Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
    expires_after: ExpiresAfter | None = None
    file_ids: list[str] | None = None
    memory_limit: MemoryLimit | None = None
    network_policy: Policy | None = None
    skills: Any = None


def read_new(body: bytes) -> NewContainer:
    """The container that a request asks for. Raises InvalidRequest."""
    sent = decode(body, NewContainer)
    check_files(sent.file_ids, "file_ids")
    check_files(sent.skills, "skills")
    check_policy(sent.network_policy, "network_policy")
    return sent
