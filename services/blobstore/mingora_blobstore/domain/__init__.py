"""Blobstore's rules: parts, ranges, quotas, what a token may touch. No Flask, no SQL."""
