"""Spark: the session, the schemas, the tables, the transforms. Nothing here knows an experiment."""
