"""Commands for operators: `harmonium doctor`, which looks at all that a service needs, and `harmonium fsck`, which
checks what the store keeps.

The looks are here, the checks of the store are its own (`store/doctor/`, `store/fsck/`). Never repair unasked.
docs/operating.md is its page.
"""
