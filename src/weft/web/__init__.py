"""A page that shows peers, and plain HTTP to publish and subscribe with.

Needs the extra `web`. The page loads nothing from other sites, so it works offline.
"""
