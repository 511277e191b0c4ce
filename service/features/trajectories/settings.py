"""The settings of trajectories."""

from pydantic import Field

from service.settings.core import CoreSettings


class TrajectorySettings(CoreSettings):
    """Whether turns note what trajectories need."""

    heading = "Trajectories"

    trajectories: bool = Field(default=False)
    """Whether turns note what trajectories need beside their messages: each prompt's beginning, once a conversation and
    whenever it changes, and a digest and the log probabilities of what was sampled, 4 bytes a token."""


GROUP = TrajectorySettings
