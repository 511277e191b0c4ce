"""Cataloguing: the row of a tree in the catalogue is made of what the archive has of it, whenever that changes."""
