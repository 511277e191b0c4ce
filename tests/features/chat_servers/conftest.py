"""Fixtures that tests elsewhere have, too."""

from tests.support.vllm.fixtures import *
