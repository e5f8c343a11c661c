"""Cyclon and TERA in columns: overlays, tables, adverts, lookups, events, churn."""
