"""The task worker: short idempotent RQ tasks and the sweeps that catch up."""
