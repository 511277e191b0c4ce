"""The catalogue in a process: the archive opens it, and has its work done."""

from service.process import Feature

FEATURE = Feature()
