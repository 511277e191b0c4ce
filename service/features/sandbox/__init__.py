"""Where Python that a model wrote runs: sessions that the kernel confines, and the port through which they are used.

A session is a process, a folder and the variables that its cells share. Nothing here knows a response, a tool or an
item; never run a line of a session's code in a process of the service, and never without the whole confinement.
docs/tools.md is its page.
"""
