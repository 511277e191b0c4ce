"""A load at a terminal: how quickly a service answers many conversations at once. A client like any other."""
