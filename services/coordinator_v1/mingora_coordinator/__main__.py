"""``python -m mingora_coordinator``."""

from mingora_coordinator.cli import run

if __name__ == "__main__":
    run()
