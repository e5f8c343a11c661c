"""The experiments, one file for each: points, simulation, measures, figure, entry.

A file defines `ENTRIES`; those whose names begin with an underscore hold what several share.
"""
