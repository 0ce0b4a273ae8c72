"""hark: contain, record, prove and replay AI agents on Linux."""

__version__ = "0.1.0"
