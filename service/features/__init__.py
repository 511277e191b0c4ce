"""The features of the service, each whole in a folder of its own: what it is, its settings, routes, chores and tools.

The core knows none of them: `service/process.py` and `service/app.py` compose what is there. A feature may import the
core, and of other features those that pyproject.toml lists.
"""
