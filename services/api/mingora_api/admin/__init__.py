"""``mingora-admin``: what the operator does to tenants, accounts, limits and tokens."""
