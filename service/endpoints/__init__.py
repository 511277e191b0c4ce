"""The HTTP endpoints: thin shells over the protocol, the run and the store."""
