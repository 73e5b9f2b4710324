"""What dev.py does, a file a command. Standard library only: it runs before anything is installed."""
