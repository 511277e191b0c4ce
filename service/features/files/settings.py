"""The settings of files."""

from pydantic import Field

from service.settings.core import CoreSettings
from service.settings.units import MIB
from store.files.files import FileLimits

HELD_SHARE = 4
"""Files in Redis may take one in so many of the bytes that conversations may."""

HELD_BYTES = 1024 * MIB
"""The same where those have no bound."""


class FileSettings(CoreSettings):
    """How much may be uploaded. Where there is no archive, the files of all tenants in a shard may come to a quarter of
    MAX_BYTES in Redis, beside it.
    """

    heading = "Files"

    max_tenant_files_bytes: int = Field(10 * 1024 * MIB, ge=0)
    """The most bytes of a tenant's files together; 0 accepts only empty files."""
    max_file_bytes: int = Field(512 * MIB, ge=0, le=64 * 1024 * MIB)
    """The most bytes of one file; 0 accepts only empty files."""

    @property
    def file_limits(self) -> FileLimits:
        """The limits of the store."""
        held = self.max_bytes // HELD_SHARE if self.max_bytes else HELD_BYTES
        return FileLimits(file_bytes=self.max_file_bytes, bytes=self.max_tenant_files_bytes, held_bytes=held)


GROUP = FileSettings
