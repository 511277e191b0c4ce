"""All settings of a process: the groups of the core and of its features, and how they are read.

The settings come from the command line, then from `HARMONIUM_*` in the environment, then from `.env` in the working
directory. They are read once, at start, into one frozen object that is passed on: never look at the environment
anywhere else.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import cast

from service.settings.core import CoreSettings
from service.settings.sources import CLIENTS, PREFIX, GivenSources, SettingsError, file_variable, in_files, variable


def settings_with(groups: Iterable[type[CoreSettings]], module: str) -> type[CoreSettings]:
    """The type of the core's settings with these groups, as `Settings` of a module. Pages list the groups in order."""
    words = {"__doc__": "Everything that can be set.", "__module__": module}
    return cast(type[CoreSettings], type("Settings", (*reversed([*groups]), CoreSettings), words))


def read_settings(kind: type[CoreSettings], overrides: Mapping[str, object], lacks: str = "") -> CoreSettings:
    """Read the settings once. An override that is not None wins over the environment, `.env` and the default. `lacks`
    is said of this installation where a variable is unknown.

    Raises SettingsError, whose message never holds a secret.
    """
    if overrides.keys() - kind.model_fields.keys():
        raise TypeError(f"not a setting: {', '.join(sorted(overrides.keys() - kind.model_fields.keys()))}")
    sources = GivenSources(kind, {name: value for name, value in overrides.items() if value is not None})
    _refuse_unknown(kind, sources.variables, lacks)
    return kind.read(sources)


def _refuse_unknown(kind: type[CoreSettings], names: Iterable[str], lacks: str) -> None:
    """Raise SettingsError for a HARMONIUM_* variable that is no setting: a misspelt limit is no limit."""
    known = {*map(variable, kind.model_fields), *map(file_variable, in_files(kind)), *CLIENTS}
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in known:
            words = {each.removeprefix(PREFIX): each for each in known}
            near = difflib.get_close_matches(name.removeprefix(PREFIX), words, n=1)
            meant = f"; did you mean {words[near[0]]}?" if near else "."
            also = lacks and f", and this installation {lacks}"
            raise SettingsError(f"{name} is not a setting{meant} `harmonium settings` lists all of them{also}")
