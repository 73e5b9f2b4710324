"""The ways a job can run on a machine."""
