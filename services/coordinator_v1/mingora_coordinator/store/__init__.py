"""What is kept in the data folder, and in what order it becomes durable."""
