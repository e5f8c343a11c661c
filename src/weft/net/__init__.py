"""The peer on a real network (asyncio).

From the bottom up: `identity` is a peer's key, `certificate` and `tls` prove it, `codec` cuts
frames, `connection` is one authenticated connection. `pool` keeps one per peer and the queues to
them, with `dialer`, `listener` and `congestion` as its parts. `runtime` drives the state machine of
`weft.protocol` over it, `life` tells what happens to it, `subscription` and `receipt` are what
applications hold, `api` is the front door, `control` and `metrics` are the side doors.
docs/wire.md describes the wire.
"""
