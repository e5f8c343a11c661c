"""Systems of others, to compare with: each a state machine behind the seam of `protocol/seam.py`,
with the parameters that its authors published. They share nothing else with weft's protocols: an
event travels in the same envelope (`protocol/wire.py`, `Payload`), so that it weighs as much and a
trace counts it alike, and all the rest is their own."""
