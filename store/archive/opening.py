"""From a URL to an archive.

    sqlite                              in a folder below the data folder
    sqlite:///FOLDER                    in another folder (an absolute path)
    s3://BUCKET[/PREFIX]                S3 and all that speaks it; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
                                        AWS_ENDPOINT_URL, and what else the provider's own tools read
    gs://BUCKET[/PREFIX]                Google's, with GOOGLE_APPLICATION_CREDENTIALS
    az://CONTAINER[/PREFIX]             Azure's, with AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY
    postgresql://[USER@]HOST/DATABASE   Postgres, with PGPASSWORD or a password file

A backend's packages are imported only for that backend. No message has more of a URL than its scheme, as the rest may
be a password.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from store.archive.archive import Archive
from store.archive.port import Backend, Bounds, checked_key
from store.archive.sqlite import SqliteBackend
from store.errors import Unsupported
from store.urls import check_hosts
from store.watcher import UNWATCHED, Watcher

FOLDER = "archive"
"""Below the data folder."""

OBJECTS = ("s3", "gs", "az")
POSTGRES = ("postgresql", "postgres")


def open_archive(url: str, data: Path, bounds: Bounds | None = None, watcher: Watcher = UNWATCHED) -> Archive:
    """The archive that a URL names; nothing is asked of it yet. `data` is the data folder.

    Raises ValueError for a URL that names none, whose message goes on from the name of what is wrong, and Unsupported
    where a package is missing.
    """
    chosen = bounds or Bounds()
    return Archive(_backend(url, data, chosen), chosen, watcher, tells_format=True)


def folder_of(url: str, data: Path) -> Path | None:
    """The folder of an archive of files, None for another archive. Raises ValueError."""
    scheme, separator, rest = url.partition("://")
    if url == "sqlite":
        return data / FOLDER
    if not separator or scheme != "sqlite":
        return None
    folder = Path(unquote(rest))
    if not folder.is_absolute():
        raise ValueError("should have an absolute path, as in sqlite:///var/lib/harmonium/archive")
    return folder


def _backend(url: str, data: Path, bounds: Bounds) -> Backend:
    scheme, separator, rest = url.partition("://")
    if (folder := folder_of(url, data)) is not None:
        return SqliteBackend(folder, bounds)
    if separator and scheme in OBJECTS:
        return _objects(scheme, rest, bounds)
    if separator and scheme in POSTGRES:
        return _postgres(url, bounds)
    raise ValueError("should be sqlite, or begin with sqlite:///, s3://, gs://, az:// or postgresql://")


def _objects(scheme: str, rest: str, bounds: Bounds) -> Backend:
    bucket, _, prefix = rest.strip("/").partition("/")
    if not bucket or any(mark in rest for mark in "@?#"):
        raise ValueError(
            f"should be {scheme}://BUCKET or {scheme}://BUCKET/PREFIX; keys are in the provider's variables"
        )
    if prefix:
        try:
            checked_key(prefix)
        except ValueError:
            raise ValueError("should have a prefix of parts of A-Z a-z 0-9 _ . - between slashes") from None
    try:
        from store.archive.objects import ObjectsBackend
    except ImportError as error:
        raise _missing(scheme, "obstore", "archive") from error
    return ObjectsBackend(scheme, bucket, prefix, bounds)


def _postgres(url: str, bounds: Bounds) -> Backend:
    check_hosts(url)
    if not urlsplit(url).path.strip("/"):
        raise ValueError("should name a database, as in postgresql://user@host/database")
    try:
        from store.archive.postgres import PostgresBackend
    except ImportError as error:
        raise _missing(urlsplit(url).scheme, "asyncpg", "postgres") from error
    return PostgresBackend(url, bounds)


def _missing(scheme: str, package: str, extra: str) -> Unsupported:
    return Unsupported(
        f"an archive at {scheme}:// needs {package}: install harmonium with the extra {extra} (docs/deploy.md#extras)"
    )
