"""What every platform service shares: configuration, errors, HTTP, tokens, the database, hints and wake-ups."""

__version__ = "0.1.0"
