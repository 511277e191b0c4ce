"""The keys that open the service, as they are now: they and the list of engines alone may change while it runs.

An operator adds a key to its file, sends SIGHUP, moves the clients, and takes the old key out the same way. An error in
one of the files changes nothing at all. Keys are compared as digests in a dictionary, so that the time taken tells
neither their bytes nor their number.
"""

import logging
from hashlib import sha256
from multiprocessing import parent_process
from threading import Lock

from pydantic import SecretStr

from service.logs import event
from service.settings.core import LEAST_KEY_CHARS, CoreSettings
from service.settings.sources import SettingsError

logger = logging.getLogger(__name__)


class Keys:
    """The API keys, each with its tenant, and the key of those who read the metrics."""

    def __init__(self, settings: CoreSettings) -> None:
        self._reading = Lock()
        self._take(settings)

    def _take(self, settings: CoreSettings) -> None:
        """Have the keys of these settings. Each request sees all of them, or none: nothing here waits."""
        self._settings = settings
        self.several = settings.several_tenants
        """Whether there is more than one tenant."""
        self.open = not settings.has_keys
        """Whether there are no API keys, so that no request needs one."""
        self._tenants = {digest: each.tenant for each in settings.api_keys for digest in _digests(each.key)}
        self._scrapers = _digests(settings.metrics_key)
        self._administrators = _digests(settings.admin_key)

    @property
    def rereads(self) -> bool:
        """Whether they come from files that may be read again."""
        return self._settings.rereads

    @property
    def settings(self) -> CoreSettings:
        """The settings with the keys and the engines of now."""
        return self._settings

    @property
    def for_metrics(self) -> bool:
        """Whether the metrics have a key of their own."""
        return bool(self._scrapers)

    def tenant(self, key: bytes) -> str | None:
        """The tenant of a key; None for a key that nobody has."""
        return self._tenants.get(_digest(key))

    def opens_metrics(self, key: bytes) -> bool:
        return _digest(key) in self._scrapers

    def administers(self, key: bytes) -> bool:
        return _digest(key) in self._administrators

    def may_go_first(self, tenant: str) -> bool:
        """Whether a tenant's requests may go before those of others. The only tenant may."""
        return tenant in self._settings.priority_tenants or not self.several

    def read_again(self) -> bool:
        """Take the keys and the engines that the files have now, if they are right. Returns whether they were taken."""
        leads = parent_process() is None  # under a supervisor only that one logs it
        what = "the keys and engines" if self._settings.engines else "the keys"
        with self._reading:  # the last that was asked for is the last that is taken
            try:
                settings = self._settings.reread()
            except SettingsError as error:
                if leads:
                    remedy = "correct the file, and send SIGHUP again"
                    event(logger, logging.ERROR, f"{what} stay as they were", reason=str(error), remedy=remedy)
                return False
            self._take(settings)
        if leads:
            keys, tenants, engines = len(settings.api_keys), len(settings.tenants), len(settings.listed_engines) or None
            message = f"{what} were read again"
            event(logger, logging.INFO, message, api_keys=keys, tenants=tenants, engines=engines)
            warn_of_short(settings)
        return True


def with_short_keys(settings: CoreSettings) -> list[str]:
    return sorted({each.tenant for each in settings.api_keys if len(each.key.get_secret_value()) < LEAST_KEY_CHARS})


def warn_of_short(settings: CoreSettings) -> None:
    short = with_short_keys(settings)
    if short:
        message = f"API keys of fewer than {LEAST_KEY_CHARS} characters can be guessed"
        event(logger, logging.WARNING, message, tenant_names=", ".join(short), remedy="openssl rand -hex 32 makes one")


def _digests(key: SecretStr) -> frozenset[bytes]:
    value = key.get_secret_value().encode()
    return frozenset([_digest(value)] if value else ())


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()
