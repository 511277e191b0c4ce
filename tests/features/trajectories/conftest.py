"""Fixtures that tests elsewhere have, too."""

from tests.support.store.fixtures import *
