"""Alembic's scripts: one history for the whole platform."""
