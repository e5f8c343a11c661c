"""The array engine: protocols for 10⁴ … 10⁸ peers, as compiled kernels over columns.

`core` is what every kernel is built from; `tera` is Cyclon and TERA, `stan` StaN's overlays,
`topic_dht` the topic-aware DHT; `data` draws the memberships that they are run on.

A peer is a number, a view is a row of numbers, a topic is a range of rows. A rule that is plain
integer arithmetic is compiled from `weft.rules` as it stands; the other kernels are compiled twins
of the functions there and stay exactly equal to them (see `docs/engine.md` and
`tests/differential`). A kernel is sequential and lets go of Python's lock, so runs with
different seeds share a machine's cores and every run is the same for any number of threads.
"""
