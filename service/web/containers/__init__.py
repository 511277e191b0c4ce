"""Containers over HTTP: the sessions in which `code_interpreter` runs code, and their files.

What a container is, and when it has expired, is known by responses/tools/containers.py; here it is put on the wire.
Never open a session here, and never read a file without its container's tenant.
"""
