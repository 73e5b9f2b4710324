"""Pure rules: no Flask, SQLAlchemy, Redis or RQ."""
