"""Events that stay: every event of a topic as a signed block, gaps repaired, history replayed.

Works over every routing: what routing brings is a block. `intake.py` checks it, finds its place in
its stream (`documents/dag.py`), has it stored (`storing.py`) and delivers it; what is missing
before it is fetched (`fetch.py`), and whoever is far behind reads the stream in its order from a
member (`catchup.py`, `answers.py`). `serving.py` answers others. `versions.py`, `ownership.py` and
`drafting.py` are about topics that have owners. `history.py` puts it all together, `wiring.py`
connects it.
"""
