"""All settings of the service: the groups of the core and of its features, and how they are read.

A feature's group is named here, and nowhere else in the core. The settings come from the command line, then from
`HARMONIUM_*` in the environment, then from `.env` in the working directory. They are read once, at start, into one
frozen object that is passed on: never look at the environment anywhere else.
"""

import difflib
from collections.abc import Iterable

from service.features.archive.settings import ArchiveSettings
from service.features.browser.settings import SearchSettings
from service.features.mcp.settings import McpSettings
from service.features.sandbox.settings import SandboxSettings
from service.features.tenants.settings import TenantSettings
from service.features.traces.settings import TraceSettings
from service.features.webhooks.settings import WebhookSettings
from service.settings.core import CoreSettings
from service.settings.sources import CLIENTS, PREFIX, GivenSources, SettingsError, file_variable, in_files, variable


class Settings(
    ArchiveSettings,
    SandboxSettings,
    TraceSettings,
    WebhookSettings,
    SearchSettings,
    McpSettings,
    TenantSettings,
    CoreSettings,
):
    """Everything that can be set. Pages list the groups from the last one up."""

    @property
    def store_limits(self) -> dict[str, str]:
        return super().store_limits | {"archive_url": self.archive_kind}


SECRETS = tuple(in_files(Settings))
"""The settings that hold secrets."""


def load_settings(**overrides: object) -> Settings:
    """Read the settings once. An override that is not None wins over the environment, `.env` and the default.

    Raises SettingsError, whose message never holds a secret.
    """
    if overrides.keys() - Settings.model_fields.keys():
        raise TypeError(f"not a setting: {', '.join(sorted(overrides.keys() - Settings.model_fields.keys()))}")
    sources = GivenSources(Settings, {name: value for name, value in overrides.items() if value is not None})
    _refuse_unknown(sources.variables)
    return Settings.read(sources)


def _refuse_unknown(names: Iterable[str]) -> None:
    """Raise SettingsError for a HARMONIUM_* variable that is no setting: a misspelt limit is no limit."""
    known = {*map(variable, Settings.model_fields), *map(file_variable, SECRETS), *CLIENTS}
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known:
            words = {each.removeprefix(PREFIX): each for each in known}
            near = difflib.get_close_matches(name.removeprefix(PREFIX), words, n=1)
            meant = f"; did you mean {words[near[0]]}?" if near else "."
            raise SettingsError(f"{name} is not a setting{meant} `harmonium settings` lists all of them")
