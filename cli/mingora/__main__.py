"""Runs the command line as `python -m mingora`."""

from mingora.cli import run

if __name__ == "__main__":
    run()
