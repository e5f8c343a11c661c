"""The array engine: Cyclon and TERA for 10⁴ … 10⁸ peers, as compiled kernels over columns.

A peer is a number, a view is a row of numbers, a topic is a range of rows. Kernels are compiled
twins of the functions in `weft.rules` and stay exactly equal to them (see `docs/engine.md` and
`tests/differential`). A kernel is sequential and lets go of Python's lock, so runs with
different seeds share a machine's cores and every run is the same for any number of threads.
"""
