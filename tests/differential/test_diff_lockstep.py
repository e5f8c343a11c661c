"""Second tier: the engine and the protocol's own machines, in lock-step, end in equal views."""

from __future__ import annotations

import numpy as np
import pytest

from nameless import contact_of
from reference import turns
from views import View, from_rows, to_rows
from weft.engine.tera.cyclon import Cycle, Span, overlay_keys, run_cycle
from weft.ids import GENERAL
from weft.protocol.config import Config, Defence
from weft.protocol.config import Cyclon as CyclonConfig
from weft.protocol.context import Context
from weft.protocol.membership import NO_NEWS, Cyclon, ShuffleReply, ShuffleRequest
from weft.protocol.seam import Send


class Machines:
    """Cyclon machines that hand their messages straight to each other, and believe each other: the
    engine's peers are all honest."""

    def __init__(self, peers: int, seed: int, view_size: int, shuffle_length: int) -> None:
        cyclon = CyclonConfig(view_size=view_size, shuffle_length=shuffle_length)
        config = Config(cyclon=cyclon, defence=Defence(views=False))
        self.contacts = [contact_of(seed, index) for index in range(peers)]
        self.index = {contact.peer: index for index, contact in enumerate(self.contacts)}
        self.contexts = [Context(contact, seed, config) for contact in self.contacts]
        self.machines = [Cyclon(context, GENERAL) for context in self.contexts]

    def know(self, views: list[View]) -> None:
        for machine, view in zip(self.machines, views, strict=True):
            for peer, age in zip(view.peers, view.ages, strict=True):
                assert machine.add(self.contacts[peer], age)

    def views(self) -> list[View]:
        return [
            View([self.index[peer] for peer in machine.peers], list(machine.ages))
            for machine in self.machines
        ]

    def exchange(self, asker: int) -> None:
        self.machines[asker].exchange(NO_NEWS, [])
        if not self.contexts[asker].out:  # it knows nobody to ask
            return
        request = self._only_message(asker, ShuffleRequest)
        asked = self.index[request.to.peer]
        sender = self.contacts[asker]
        self.machines[asked].on_request(sender, request.message, NO_NEWS)
        reply = self._only_message(asked, ShuffleReply)
        self.machines[asker].on_reply(self.contacts[asked], reply.message)

    def _only_message(self, peer: int, kind: type) -> Send:
        (effect,) = self.contexts[peer].take_effects()
        assert isinstance(effect, Send)
        assert isinstance(effect.message, kind)
        return effect


@pytest.mark.parametrize(
    ("peers", "view_size", "shuffle_length", "known"),
    [(150, 20, 8, 20), (150, 20, 8, 3), (40, 20, 8, 19), (12, 20, 8, 2), (60, 7, 3, 4)],
)
def test_engine_and_protocol_end_in_equal_views(
    peers: int, view_size: int, shuffle_length: int, known: int
) -> None:
    seed = 11
    dice = np.random.default_rng(seed)
    others = [np.delete(np.arange(peers), peer) for peer in range(peers)]
    views = [View(dice.permutation(each)[:known].tolist(), [0] * known) for each in others]
    machines = Machines(peers, seed, view_size, shuffle_length)
    machines.know(views)
    rows = to_rows(views, view_size)
    keys = overlay_keys(seed)
    for tick in range(1, 41):
        for asker in turns(peers, seed, tick):
            machines.exchange(asker)
        run_cycle(rows, Span(0, peers), Cycle(keys, tick, shuffle_length))
    assert from_rows(rows) == machines.views()
    assert all(len(view.peers) <= view_size for view in machines.views())
