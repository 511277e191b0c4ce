"""Fixtures that tests elsewhere have, too."""

from tests.support.llama.fixtures import *
