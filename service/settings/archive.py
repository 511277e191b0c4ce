"""The settings of the archive: what of a conversation stays where it has left memory. docs/archive.md has the URLs."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SQLITE = "sqlite"
NO_ARCHIVE = "none"
KINDS = (SQLITE, "s3", "gs", "az", "postgresql", "postgres")
"""What an archive's URL begins with."""


class ArchiveSettings(BaseSettings):
    """What an archive needs. The text below each setting is its help and its documentation."""

    model_config = SettingsConfigDict(defer_build=True)

    archive_url: str = Field("", max_length=4096, repr=False)
    """Where turns are kept that leave memory: `sqlite` in the data folder, `sqlite:///FOLDER`, `s3://BUCKET/PREFIX`,
    `gs://`, `az://` or `postgresql://`. `none` deletes what leaves memory. Empty is `sqlite` with the embedded server,
    and `none` with REDIS_URL."""
    archive_after_seconds: float = Field(60, ge=0, le=86_400)
    """How long after a conversation changed it is archived. Until then it is in memory alone."""
    archive_days: float = Field(0, ge=0, le=36_500)
    """An archived conversation that nobody continued for so many days is deleted for good. 0 keeps it."""
    archive_when_down: Literal["refuse", "evict"] = "refuse"
    """What becomes of a new turn where memory is full of what an archive that is away still lacks: it is refused with
    503, or takes the place of the turn used least, which is then lost."""
    archive_timeout_seconds: float = Field(5, gt=0, le=60)
    """The most that one call of the archive may take, with all its tries."""

    @field_validator("archive_url")
    @classmethod
    def _check_archive_url(cls, value: str) -> str:
        """What can be told without the backend: it isn't shown, as it may have a password in it."""
        if value in ("", NO_ARCHIVE, SQLITE):
            return value
        try:
            scheme = urlsplit(value).scheme
        except ValueError:
            scheme = ""
        if "://" not in value or scheme not in KINDS:
            raise ValueError("should be none, sqlite, or begin with sqlite:///, s3://, gs://, az:// or postgresql://")
        return value

    @property
    def has_archive(self) -> bool:
        """Whether there is an archive: with the embedded server, once its address is known."""
        return self.archive_url not in ("", NO_ARCHIVE)

    @property
    def archive_kind(self) -> str:
        """What kind of archive that is, or none."""
        return self.archive_url.partition(":")[0] if self.has_archive else NO_ARCHIVE
