"""What tests share: services and servers to test, oracles to judge them by, stand-ins and samples. Never a test."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The project's folder."""
