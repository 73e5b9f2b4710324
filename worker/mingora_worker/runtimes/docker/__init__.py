"""Runs a job in a locked-down container (WORK-7)."""
