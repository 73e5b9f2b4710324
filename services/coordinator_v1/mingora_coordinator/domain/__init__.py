"""The rules: pure Python and NumPy, no Flask and no files."""
