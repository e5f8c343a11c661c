"""Simulations of the topic-aware DHT as functions: parameters and a seed in, columns out.

Each module holds one experiment or a family of them:

    points…(size)       the parameters to run it at, for size "quick" or "full": plain data
    run(params, seed)   one point with one seed: arrays of one length, or single numbers
    seconds(params)     about how long that takes on one core
    gigabytes(params)   about how much memory it needs (where it matters)
    SEEDS               how many seeds each size is meant for

Results depend on the parameters and the seed alone. What is claimed, and how far a measured
value may be off by chance, is derived next to the simulation.
"""
