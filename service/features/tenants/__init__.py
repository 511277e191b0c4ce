"""Tenants: projects, their service accounts and keys, who may do what, who used what, the audit log,
and OpenAI's admin API over them.

A project is a tenant: its belongings are found under its id and under no other. Never log a key. docs/tenants.md is its
page.
"""
