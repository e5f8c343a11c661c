"""Systems of other authors, to compare with: each is a state machine behind the seam of
`protocol/seam.py`, with the parameters that its authors published. They share only one message with
weft's protocols: an event travels in the same envelope (`protocol/wire.py`, `Payload`), so that it
has the same size and a trace counts it alike."""
