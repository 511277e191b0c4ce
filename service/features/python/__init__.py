"""Python that a model writes, in containers: `code_interpreter`, the files of a container, and their routes.

Where it runs is the sandbox's. Never run a line here. docs/tools.md is its page.
"""
