"""The training as it goes on in the one process that owns the data folder: receiving, summing, closing, publishing."""
