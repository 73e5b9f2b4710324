"""The rules of accounts and jobs, free of any framework and engine."""
