"""The protocol's paths and its Turkish words; they go no further than this."""
