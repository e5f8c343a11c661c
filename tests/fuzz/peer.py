"""Coverage-guided fuzzing of a peer's handlers, by hand:

    python -m pip install atheris
    PYTHONPATH=src python tests/fuzz/peer.py [libFuzzer's flags, such as -max_total_time=600]

It plays scripts of facts to a peer as `tests/protocol/test_protocol_peer_fuzz.py` does, but lets
the fuzzer steer by which lines of weft were reached. Not part of the test suite: it never ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "protocol"), str(TESTS / "kit")]
with atheris.instrument_imports(include=["weft"]):
    from test_protocol_peer_fuzz import test_no_order_of_things_hurts

atheris.Setup(sys.argv, test_no_order_of_things_hurts.hypothesis.fuzz_one_input)
atheris.Fuzz()
