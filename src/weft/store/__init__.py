"""Where events stay: a small interface, in memory and in SQLite, and archives (see docs)."""
