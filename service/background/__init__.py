"""Background responses: submitted to the queue, made by workers, followed and cancelled from any process.

Unlike the foreground it has a lease, a log that survives the process, and a replay of it.
Never turn tokens into events here: `responses` does that, the same for both.
"""
