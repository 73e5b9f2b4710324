"""Flask blueprints: wire words, parsing and rendering."""
