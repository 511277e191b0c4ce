"""Output: sampled tokens become events, events a response, and both the bytes of an event log.

Pure, so that a worker which replays the tokens of another makes the same events.
Never I/O, a clock or chance: their values are passed in.
"""
