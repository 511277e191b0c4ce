"""Fixtures that tests elsewhere have, too."""

from tests.support.tools.fixtures import *
