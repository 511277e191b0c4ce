"""Fixtures that tests elsewhere have, too."""

from tests.support.service.folders import *
from tests.support.store.fixtures import *
