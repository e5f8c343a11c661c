"""Finding peers on a local network by multicast DNS (RFC 6762, RFC 6763): `weft peer --mdns`.

Each peer registers itself as a service of the kind `_weft._tcp.local.`, with its address and the
name of its network, and looks for others of that kind. It joins by peers of its own network, as by
an address that its user gave: by the first few, and by any while it knows no other peer.

An address found here is trusted no more than one from a stranger: it names a key, and the peer
behind it must prove that it has that key. Anyone on the local network can see this peer; so it
registers itself only on demand.

Needs the package `zeroconf` (the extra `mdns`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging

from zeroconf import InterfaceChoice, ServiceInfo, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from weft.ids import BadId, parse_contact, split_address
from weft.net.api import Peer

log = logging.getLogger("weft.net")

KIND = "_weft._tcp.local."
JOINED_MAX = 3
"""guess: enough peers to join by; the peer learns of the others from them."""
_ANSWER_MS = 3_000
_SEEN_MAX = 4_096  # guess: services looked at; an endless stream of new ones is no local network


class LocalNetwork:
    """One peer's presence on the local network; an async context manager."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._host, self._port = split_address(peer.address.rpartition("/p2p/")[0])
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen = 0
        self._joined = 0

    async def __aenter__(self) -> LocalNetwork:
        # A peer that only this machine can dial is announced on this machine alone.
        here = ["127.0.0.1"] if _is_loopback(self._host) else InterfaceChoice.All
        self._zeroconf = AsyncZeroconf(interfaces=here)
        await self._zeroconf.async_register_service(self._service(), allow_name_change=True)
        self._browser = AsyncServiceBrowser(
            self._zeroconf.zeroconf, [KIND], handlers=[self._on_change]
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._zeroconf is not None:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()

    def _service(self) -> ServiceInfo:
        try:
            addresses = [ipaddress.ip_address(self._host).packed]
        except ValueError:
            addresses = []  # a name, which is in the address
        return ServiceInfo(
            KIND,
            f"{self._peer.id[-16:]}.{KIND}",
            addresses=addresses,
            port=self._port,
            properties={
                "address": self._peer.address,
                "network": self._peer.config.network.name,
            },
        )

    def _on_change(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        if state_change is ServiceStateChange.Removed or self._seen >= _SEEN_MAX:
            return
        self._seen += 1
        task = asyncio.ensure_future(self._look_at(zeroconf, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at(self, zeroconf: Zeroconf, name: str) -> None:
        info = AsyncServiceInfo(KIND, name)
        if await info.async_request(zeroconf, _ANSWER_MS):
            self.found(info.decoded_properties)

    def found(self, told: dict[str, str | None]) -> None:
        """Another peer was found; `told` is what it says of itself."""
        address = told.get("address") or ""
        if told.get("network") != self._peer.config.network.name or self._peer.closed:
            return
        try:
            contact = parse_contact(address)
        except BadId as error:
            log.info("a service on the local network is no peer: %s", error)
            return
        if address == self._peer.address:
            return
        if self._peer.isolated or self._joined < JOINED_MAX:
            self._joined += 1
            log.info("joining by %s, found on the local network", contact.address)
            self._peer.join(address)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
