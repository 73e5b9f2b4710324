"""Blobstore's rows in the platform database, and the content behind them."""
