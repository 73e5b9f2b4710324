"""The platform's database: tables, views, migrations, and the engine that opens it."""
