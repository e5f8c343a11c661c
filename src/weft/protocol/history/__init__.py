"""Events that stay: every event of a topic as a signed block, gaps repaired, history replayed.

Works over every routing: what routing brings is a block. `history.py` is the front; its text says
what the layers below it do.
"""
