"""Commands that talk to a service over HTTP, here or elsewhere: `ask`, `chat`, `show`, `log`, `tail`, `wait` and so on.

They are clients like any other, so they know no settings, no store and no room of the service but the words of its
command line: that is also why they start at once. Never import more here, nor take a key from the command line.
docs/cli.md is its page.
"""
