"""TERA's routing (Baldoni et al., 2007): an overlay per topic, found through access points.

`tera.py` composes, behind `protocol/routing.py`, and says which message goes where.
"""
