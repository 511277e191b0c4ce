"""Commands that talk to a service over HTTP, here or elsewhere: `ask`, `chat`, `show`, `log`, `tail`, `wait` and so on.

They are clients like any other, so they know no settings, no store and nothing of the service's own rooms: that is also
why they start at once. Never import anything of these here, nor take a key from the command line.
"""
