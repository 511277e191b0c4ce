"""The doctor: what a Redis says of itself, and what of that could cost conversations.

Facts are read by one module and judged by another, which is pure.
Never a change to the server.
"""
