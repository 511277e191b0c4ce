"""Background responses: submitted to the queue, made by workers, followed and cancelled from any process.

What differs from the foreground: a lease, a log that survives the process, and a replay of it.
Never how tokens become events: that is `responses`, the same for both.
"""
