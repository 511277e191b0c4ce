"""The shapes of all types that are stored: the names, types and defaults of their members, as the code has them."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, cast

from msgspec import NODEFAULT, Raw, inspect

from service.api import events
from service.api.conversation import Conversation, Omitted
from service.api.items import Configuration
from service.api.response import Response
from service.features.batches.shapes import BatchRecord
from service.features.browser.browser.page import Display
from service.features.catalogue.describing import KeptSummary
from service.features.console.turns import Portable
from service.features.mcp.settings import McpConnection
from service.features.models import known_ids
from service.features.models.templated import TemplatedChat
from service.features.python.containers import ContainerRecord
from service.features.tenants.records import Account, Key, Project
from service.responses import plan
from service.responses.output import journal
from service.responses.output.reading import SampledNote
from service.responses.output.sealed import SealedCompaction
from store.backup.archiving.marks import Mark
from store.backup.archiving.parts import KnownTurn, Outline, Part, Shape
from store.backup.heads import ArchiveHead
from store.backup.records import Saved
from store.backup.upkeep.backup_file import BackupHeader
from store.catalogue.catalogue import StoredRow
from store.files.files import FileRecord
from store.history import omissions
from store.turn import StoredMessage

STORED: tuple[Any, ...] = (
    *(StoredMessage, Conversation, Response, Omitted, Configuration, SampledNote, SealedCompaction),
    *(omissions._Omits, known_ids._Note),  # pyright: ignore[reportPrivateUsage]
    *(plan._Queued, journal._Written, *events.KINDS, TemplatedChat, Display, McpConnection),  # pyright: ignore[reportPrivateUsage]
    *(FileRecord, ContainerRecord, BatchRecord, Project, Account, Key),
    *(ArchiveHead, Saved, Part, Outline, Shape, KnownTurn, Mark, BackupHeader, Portable),
    *(StoredRow, KeptSummary),
)
"""The types whose values are stored, by themselves or as the outermost of others."""


DIGEST_BYTES = 8

_OF_MEMBERS = inspect.StructType | inspect.NamedTupleType | inspect.DataclassType | inspect.TypedDictType


def shapes(stored: Iterable[Any] = STORED) -> dict[str, str]:
    """A digest of the shape of each of these types and of each type in them, by their names."""
    found: dict[type, str] = {}

    def shape_of(part: Any) -> str:
        if isinstance(part, _OF_MEMBERS):
            if part.cls not in found:
                found[part.cls] = ""  # a type may be in itself
                found[part.cls] = attributes_of(part)
            return part.cls.__qualname__
        if isinstance(part, inspect.EnumType):
            return f"Enum{sorted(each.value for each in part.cls)}"
        if isinstance(part, inspect.Type | inspect.Field):
            return f"{type(part).__name__}({attributes_of(part)})"
        if isinstance(part, list | tuple):
            return f"[{', '.join(map(shape_of, cast(Iterable[Any], part)))}]"
        if isinstance(part, Raw):
            return repr(bytes(part))
        return part.__qualname__ if callable(part) else repr(part)

    def attributes_of(part: Any) -> str:
        given = {name: getattr(part, name) for name in part.__struct_fields__ if name != "name"}
        return ", ".join(f"{name}={shape_of(each)}" for name, each in given.items() if each not in (None, NODEFAULT))

    for each in inspect.multi_type_info(stored):
        shape_of(each)
    texts = {kind.__qualname__: text for kind, text in found.items()}
    assert len(texts) == len(found), "two types have one name"
    return {name: blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest() for name, text in sorted(texts.items())}
