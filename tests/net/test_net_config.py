"""Settings from TOML: every mistake gets a text that says what to change."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import weft
from weft.net.config import Config, Network
from weft.net.errors import ConfigError, ListenError
from weft.net.listener import bind, parse_endpoint

PEER = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWM6CgA9iBFZmcYAHA6A2qvbAxqfkmrYiRQuz3XEsk4Ksv"


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "weft.toml"
    path.write_text(text)
    return Config.load(path)


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Config()


def test_settings_are_read_into_their_places(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        f"""
        [network]
        name = "lab"
        listen = "127.0.0.1:4001"
        join = ["{PEER}"]
        idle_ms = 1000
        [protocol.cyclon]
        view_size = 8
        [protocol.dissemination]
        scheme = "flood"
        """,
    )
    assert config.network.name == "lab"
    assert config.network.join == (PEER,)
    assert config.network.idle_ms == 1_000
    assert config.protocol.cyclon.view_size == 8
    assert config.protocol.dissemination.scheme == "flood"
    assert config.protocol.tera == Config().protocol.tera


def test_a_program_says_the_same_in_dictionaries(tmp_path: Path) -> None:
    said = Config.of({"network": {"join": [PEER], "idle_ms": 5}, "protocol": {"routing": "flood"}})
    text = f'[network]\njoin = ["{PEER}"]\nidle_ms = 5\n[protocol]\nrouting = "flood"'
    assert said == load(tmp_path, text)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"netwrok": {}}, "settings: unknown key 'netwrok'; did you mean 'network'?"),
        ({1: {}}, "settings: unknown key '1'"),
        ({"network": {"idle_ms": "long"}}, "'network.idle_ms': Expected `int`, got `str`"),
        ({"network": 5}, "'network' must be a table"),
    ],
)
async def test_mistakes_in_dictionaries_are_named(
    settings: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await weft.Peer.open(config=settings)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[network", "not valid TOML"),
        ("[netwrok]", "unknown key 'netwrok'; did you mean 'network'?"),
        ("[network]\nidle = 1", "unknown key 'network.idle'; did you mean 'idle_ms'?"),
        ("[protocol.cyclon]\nzzz = 1", "unknown key 'protocol.cyclon.zzz'; known keys: cycle_ms"),
        ("[network]\nidle_ms = 'long'", "'network.idle_ms': Expected `int`, got `str`"),
        ("[network]\nidle_ms = 1.5", "'network.idle_ms': Expected `int`, got `float`"),
        ("[network]\nidle_ms = 0", "network.idle_ms must be at least 1"),
        ("[network]\njoin = 'x'", "'network.join': Expected `array`, got `str`"),
        ("[network]\njoin = ['/ip4/1.2.3.4/tcp/1']", "names no peer"),
        ("[network]\nname = ''", "1 to 64 characters"),
        ("[network]\nqueue_soft_bytes = 99999999", "must not exceed network.queue_hard_bytes"),
        ("network = 3", "'network' must be a table: write [network]"),
        ("[protocol.cyclon]\nview_size = 1", "[protocol.cyclon] cyclon.view_size must be 2 to 63"),
        ("[protocol]\ncapacity = 0", "capacity: from 0.1 to 100, where a usual peer has 1"),
        ("[protocol]\ncapacity = nan", "capacity: from 0.1 to 100"),
        (
            "[protocol]\nrouting = 'flood'\n[protocol.stan]\nenabled = true",
            "stan.enabled: the flood has no links of topics",
        ),
        (
            "[protocol]\nrouting = 'topic-dht'\n[protocol.stan]\nenabled = true",
            "stan.enabled: the trees of the topic-aware DHT share links as they are",
        ),
        (
            "[protocol]\nrouting = 'pulsarcast'\n[protocol.stan]\nenabled = true\nlean = true",
            "stan.lean: only TERA's walks tell which topics others are in",
        ),
        ("[protocol.dissemination]\nscheme = 'loud'", "'protocol.dissemination.scheme'"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert expected in str(caught.value)
    assert "weft.toml" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Config.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        Config.load(tmp_path / "bad.toml")


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one largest frame"):
        Network(queue_hard_bytes=1 << 20, frame_bytes_max=2 << 20)
    with pytest.raises(ValueError, match="at least 65536"):
        Network(frame_bytes_max=1_000)
    with pytest.raises(ValueError, match="handshakes_per_ip_max"):
        Network(handshakes_max=10)


def test_limits_that_just_agree_are_taken() -> None:
    size = 1 << 20
    Network(
        frame_bytes_max=size,
        unfinished_bytes_max=size,
        queue_soft_bytes=size,
        queue_hard_bytes=size,
        queue_stranger_bytes=size,
        queue_strangers_bytes=size,
        handshakes_per_ip_max=10,
        handshakes_max=10,
    )


# --- where to listen ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:4001", ("127.0.0.1", 4001)),
        ("[::1]:0", ("::1", 0)),
        ("/ip4/127.0.0.1/tcp/4001", ("127.0.0.1", 4001)),
        ("/ip6/::1/tcp/0", ("::1", 0)),
    ],
)
def test_endpoints(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["", "4001", "host", "host:", ":1", "host:99999", "/ip4/x/tcp/1"])
def test_endpoints_that_are_none(text: str) -> None:
    with pytest.raises(ListenError):
        parse_endpoint(text)


def test_port_0_is_announced_as_the_port_that_was_taken() -> None:
    listener, address = bind("127.0.0.1:0")
    with listener:
        assert address == f"/ip4/127.0.0.1/tcp/{listener.getsockname()[1]}"


def test_listening_everywhere_needs_something_to_announce() -> None:
    with pytest.raises(ListenError, match="announce"):
        bind("0.0.0.0:0")
    for announce, start in (
        ("192.0.2.7", "/ip4/192.0.2.7/tcp/"),
        ("peer.example.org", "/dns/peer.example.org/tcp/"),
        ("peer.example.org:99", "/dns/peer.example.org/tcp/99"),
        ("2001:db8::1", "/ip6/2001:db8::1/tcp/"),
        ("/ip4/192.0.2.7/tcp/5", "/ip4/192.0.2.7/tcp/5"),
    ):
        listener, address = bind("0.0.0.0:0", announce)
        with listener:
            assert address.startswith(start)


def test_a_taken_port_says_so() -> None:
    listener, address = bind("127.0.0.1:0")
    with listener:
        listener.listen()
        with pytest.raises(ListenError, match="in use"):
            bind(f"127.0.0.1:{address.rsplit('/', 1)[1]}")


# --- the package ----------------------------------------------------------------------------------


def test_the_version_is_the_projects() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["version"] == weft.__version__


def test_the_public_api_is_complete() -> None:
    for name in weft.__all__:
        assert getattr(weft, name) is not None
    assert set(dir(weft)) == set(weft.__all__)
    with pytest.raises(AttributeError):
        weft.nothing  # noqa: B018
