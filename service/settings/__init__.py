"""Settings: every setting with its bounds and description, read once at start and checked against each other.

The keys alone may be read again. The only room that reads the environment.
Never a default anywhere else: code that needs a number is given it.
"""
