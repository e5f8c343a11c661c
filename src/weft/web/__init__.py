"""The window: a page to watch peers by, and plain HTTP to publish and subscribe with.

Needs the extra `web`. Nothing is loaded from elsewhere, so it works offline.
"""
