"""The commands: `harmonium serve`, `worker`, `doctor`, `fsck`, `backup`, `restore`, each a function of the settings.

Here processes, ports, signals and terminals are handled, so that no other room has to know them.
Never how a response is made: a command opens the service and runs the rooms below.
"""
