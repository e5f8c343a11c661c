"""Judges of a run, apart from the code they judge: deliveries, stores, state, lookups, roles."""
