"""Engines: token ids in, sampled token ids out, behind one port with one conformance suite.

Servers over HTTP of several kinds, vLLM in this process, and the demo engine.
Never HTTP of ours, the store, or the client.
"""
