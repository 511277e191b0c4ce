"""Batches: `/v1/batches`, files of requests that are answered within a day.

Each line is a background response with a window, so workers make it and crashes don't lose it. Here lines are read,
queued a few hundred at a time, and their answers are gathered in a file. Never make a line in any other way.
"""
