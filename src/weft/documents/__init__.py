"""Documents: what peers sign, store and pass on, by content (Pulsarcast, Section 4.1).

Topics, events and records are dag-cbor blocks under their CID. These modules encode, check and
read them, and say which keys may write which; nothing here keeps state but `dag.py`, the one
order of a topic's events.
"""
