"""The settings of the archive."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from service.settings.core import CoreSettings
from service.settings.group import shown_as
from service.settings.urls import without_password

SQLITE = "sqlite"
NO_ARCHIVE = "none"
ARCHIVE_KINDS = (SQLITE, "s3", "gs", "az", "postgresql", "postgres")
"""The schemes of an archive's URL."""

BUCKETS = ("s3", "gs", "az")
_BUCKET = re.compile(r"[a-z0-9]+://[A-Za-z0-9._-]+(/[^@?#]*)?\Z")


class ArchiveSettings(CoreSettings):
    """Where turns are kept that leave memory."""

    heading = "Archive"

    archive_url: Annotated[str, shown_as(without_password)] = Field("", max_length=4096, repr=False)
    """The archive for turns that leave memory: `sqlite`, `sqlite:///FOLDER`, `s3://BUCKET/PREFIX`, `gs://`, `az://`,
    `postgresql://`; `none` deletes them. Empty is `sqlite`, and with REDIS_URL `none`."""
    archive_after_seconds: float = Field(60, ge=0, le=86_400)
    """How long after a change a conversation is archived. Until then only memory has the change."""
    archive_days: float = Field(0, ge=0, le=36_500)
    """An archived conversation is deleted after so many days without a continuation. 0 keeps it."""
    archive_when_down: Literal["refuse", "evict"] = "refuse"
    """A new turn while memory is full and the archive is away: `refuse` answers 503, `evict` replaces the least
    recently used turn, which is lost."""

    @field_validator("archive_url")
    @classmethod
    def _check_archive_url(cls, value: str) -> str:
        """Check the URL as far as that needs no backend. No error shows it, as it may have a password in it."""
        if value in ("", NO_ARCHIVE, SQLITE):
            return value
        try:
            scheme = urlsplit(value).scheme
        except ValueError:
            scheme = ""
        if "://" not in value or scheme not in ARCHIVE_KINDS:
            raise ValueError("should be none, sqlite, or begin with sqlite:///, s3://, gs://, az:// or postgresql://")
        if scheme in BUCKETS and not _BUCKET.match(value):
            raise ValueError(f"should be {scheme}://BUCKET/PREFIX; keys are in the provider's variables")
        return value

    @property
    def has_archive(self) -> bool:
        """Whether there is an archive: with the embedded server, once its address is known."""
        return self.archive_url not in ("", NO_ARCHIVE)

    @property
    def store_limits(self) -> dict[str, str]:
        return super().store_limits | {"archive_url": self.archive_kind}

    @property
    def archive_kind(self) -> str:
        """The kind of the archive, or none."""
        return self.archive_url.partition(":")[0] if self.has_archive else NO_ARCHIVE


GROUP = ArchiveSettings
