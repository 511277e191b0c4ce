"""The settings of trajectories."""

from pydantic import Field

from service.settings.core import CoreSettings
from service.stability import EXPERIMENTAL


class TrajectorySettings(CoreSettings):
    """Whether turns store data for trajectories."""

    heading = "Trajectories"

    trajectories: bool = Field(default=False, json_schema_extra=EXPERIMENTAL)
    """Whether turns store data for trajectories: the beginning of prompts, once a conversation and at each change, a
    digest of sampled ids, and their log probabilities, 4 bytes a token."""


GROUP = TrajectorySettings
