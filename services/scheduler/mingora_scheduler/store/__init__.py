"""SQL: reads rows into the domain's values, writes what the domain decided."""
