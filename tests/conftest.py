"""Settings shared by all tests.

Hypothesis draws the same examples in every run and keeps no database, so that a run that passes
here passes everywhere. `--hypothesis-profile explore` looks for new ones instead.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,  # machines differ; slow tests are found by pytest's own timeout
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    derandomize=False,
    database=None,
    deadline=None,
    max_examples=2_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
