"""The doctor: the facts that a Redis reports of itself, and the risks to conversations in them.

Facts are read by one module and judged by another, which is pure.
Never a change to the server.
"""
