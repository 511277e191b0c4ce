"""Tenants: projects, their service accounts and keys, who may do what, who used what, and the audit log. It knows no
HTTP.

A project is a tenant: what belongs to it is found under its id and under no other. Never log a key.
"""
