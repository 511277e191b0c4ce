"""Python that a model writes, in containers: `code_interpreter`, the files of a container, and their routes.

The sandbox runs it. Never run a line here. docs/tools.md is its page.
"""
