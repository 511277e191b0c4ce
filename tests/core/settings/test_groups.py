"""Groups of settings: a feature brings its own, and the core is complete without one."""

import pytest
from pydantic import Field

from service.process import Settings
from service.settings.core import CoreSettings
from service.settings.group import SettingsGroup, display
from service.settings.sources import GivenSources, SettingsError


class ProbeSettings(SettingsGroup):
    """The group of a feature that there isn't."""

    heading = "Probes"

    probe_seconds: float = Field(1, gt=0, le=90)
    """How long a probe may take."""


class ProbedSettings(ProbeSettings, CoreSettings):
    """The core with that feature."""


def test_the_group_of_a_feature_is_read_shown_and_refused_as_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARMONIUM_PROBE_SECONDS", "1m")
    settings = ProbedSettings.read(GivenSources(ProbedSettings, {"port": 5}))
    assert (settings.port, ProbeSettings.of(settings).probe_seconds) == (5, 60)
    assert display(settings)["probe_seconds"] == 60
    assert ProbedSettings.by_heading()["Probes"] == ["probe_seconds"]
    assert ProbedSettings.description("probe_seconds") == "How long a probe may take."
    with pytest.raises(SettingsError, match=r"^--probe-seconds 0: should be a number, above 0 to 90, or with a unit"):
        ProbedSettings.read(GivenSources(ProbedSettings, {"probe_seconds": 0}))


def test_the_core_is_read_without_features_and_one_that_is_not_there_is_refused() -> None:
    settings = CoreSettings.read(GivenSources(CoreSettings, {}))
    assert settings.stands_in
    with pytest.raises(TypeError, match="CoreSettings is without ProbeSettings"):
        ProbeSettings.of(settings)


def test_each_setting_is_in_one_group() -> None:
    names = [name for group in Settings.by_heading().values() for name in group]
    assert names == list(Settings.model_fields)
