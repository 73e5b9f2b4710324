"""Blobstore's HTTP routes: parsing, wire words and rendering."""
