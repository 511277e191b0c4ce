"""Connections to servers of engines: small requests (`contact`), and answers that are streams (`pool`, `connection`).

What is read here is bytes: what they mean is for `servers` and the kinds. Never what an engine is, or which server is
to be asked.
"""
