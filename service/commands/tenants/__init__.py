"""`harmonium projects`, `keys` and `audit`: tenants administered on the machine, without an administrator's key.

They work on the store itself, whether or not a service runs on it, and each change is in the audit log as done on the
command line.
"""
