"""The API on the wire: requests as they are sent, responses and events as they are shown, and ids.

Pure: JSON of untrusted requests in, typed values out, with errors that name the parameter.
Never what a request is answered with: that is `responses`.
"""
