"""The code beside the service and inside the sandbox: the process that forks sessions, their confinement, their cells.

It has the standard library alone, so that nothing of the service is there to be found by a session. Never import a
module of another room here.
"""
