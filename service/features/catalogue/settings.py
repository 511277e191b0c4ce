"""The settings of the catalogue."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from service.settings.core import CoreSettings
from service.settings.group import shown_as
from service.settings.urls import without_password
from store.urls import check_hosts

SQLITE = "sqlite"


class CatalogueSettings(CoreSettings):
    """Where the list of all that is kept is, and what is found in it."""

    heading = "Catalogue"

    catalogue_url: Annotated[str, shown_as(without_password)] = Field("", max_length=4096, repr=False)
    """The list of the archive's conversations: `sqlite`, `sqlite:///FOLDER` or `postgresql://`. Empty is beside the
    archive, or in the data folder for a bucket; for several machines name a Postgres."""
    catalogue_words: Literal["titles", "all"] = "titles"
    """The indexed words of a conversation: title, newest turn and metadata, or all its texts, which doubles the
    space."""

    @field_validator("catalogue_url")
    @classmethod
    def _check_catalogue_url(cls, value: str) -> str:
        """Check the URL. No error shows it, as it may have a password in it."""
        try:
            check_hosts(value)
        except ValueError:
            raise ValueError("should be a URL, with / ? # @ : [ in a password as %2F %3F %23 %40 %3A %5B") from None
        if value in ("", SQLITE) or value.startswith((f"{SQLITE}:///", "postgresql://", "postgres://")):
            return value
        raise ValueError("should be sqlite, or begin with sqlite:/// or postgresql://")


GROUP = CatalogueSettings
"""The group that the settings are read into."""
