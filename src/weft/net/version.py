"""The version that greetings and `weft --version` show; a test keeps it equal to pyproject's."""

VERSION = "0.1.0"
