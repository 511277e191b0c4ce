"""The validators of trajectories that harbor and NeMo Gym have, over lines on stdin: `judges.py atif` or `gym`.

Of their packages only these modules are loaded: all else of them wants Python 3.12 and much that isn't here.
"""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

PACKAGES = Path(__file__).parents[3] / ".venv-judges"


def _package(name: str) -> None:
    """Have modules of a package found without running what it runs itself."""
    module = ModuleType(name)
    module.__path__ = [str(PACKAGES / name.replace(".", "/"))]
    sys.modules[name] = module


def judge_atif(trajectory: Any) -> None:
    """Raise unless harbor takes a trajectory."""
    from harbor.utils.trajectory_validator import TrajectoryValidator  # pyright: ignore

    validator: Any = TrajectoryValidator()
    if not validator.validate(trajectory):
        raise ValueError(validator.errors)


def judge_gym(rollout: Any) -> None:
    """Raise unless NeMo Gym takes a rollout, and each generation's item as one for training."""
    from nemo_gym import openai_utils as gym  # pyright: ignore

    types: Any = gym
    types.NeMoGymResponseCreateParamsNonStreaming.model_validate(rollout["responses_create_params"])
    response: Any = types.NeMoGymResponse.model_validate(rollout["response"])
    training = (
        types.NeMoGymResponseOutputMessageForTraining,
        types.NeMoGymResponseFunctionToolCallForTraining,
        types.NeMoGymResponseReasoningItemForTraining,
    )
    for item, read in zip(rollout["response"]["output"], response.output, strict=True):
        if item.get("prompt_token_ids") and not isinstance(read, training):
            raise ValueError(f"{type(read).__name__} has no ids: {item}")


for each in ("harbor", "harbor.models", "harbor.utils", "nemo_gym"):
    _package(each)
sys.modules["nemo_gym.server_utils"] = MagicMock()
judge = {"atif": judge_atif, "gym": judge_gym}[sys.argv[1]]
count = 0
for line in sys.stdin:
    judge(json.loads(line))
    count += 1
sys.stdout.write(f"{count}\n")
