"""The experiments on the topic-aware DHT that are run with the real state machines in virtual time.

`world.py` is a network of peers and what is counted in it. Each of the other files is a simulation
that entries in `weft/lab/experiments` name; what is asked of thousands of peers runs over arrays
(`weft/engine/experiments/tadht_*.py`).
"""
