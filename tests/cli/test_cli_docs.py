"""The site of the documentation: every link in it leads somewhere."""

from __future__ import annotations

from pathlib import Path

from weft.cli.docs import complete


def made(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_files_beside_the_pages_come_along(tmp_path: Path) -> None:
    checkout = made(tmp_path / "checkout", {"examples/a chat.py": "print()", "SECURITY.md": "#"})
    links = [
        '<a class="x" href="../examples/a%20chat.py">',
        '<a href="../SECURITY.md#whom">',
        '<a href="protocols/tera.html">',
        '<a href="#here">',
        '<a href="https://example.org/">',
        '<img src="soak%20one.svg?v=1">',
    ]
    below = '<a href="../../SECURITY.md"><a href="../api.html#x">'
    page = {"api.html": "".join(links), "protocols/tera.html": below, "soak one.svg": "<svg/>"}
    site = made(tmp_path / "site", page)
    assert complete(site, checkout) == []
    assert (site / "checkout/examples/a chat.py").read_text() == "print()"
    assert (site / "checkout/SECURITY.md").is_file()
    text = (site / "api.html").read_text()
    assert '<a class="x" href="checkout/examples/a%20chat.py">' in text
    assert '<a href="checkout/SECURITY.md#whom">' in text
    assert text.endswith("".join(links[2:]))
    assert '<a href="../checkout/SECURITY.md">' in (site / "protocols/tera.html").read_text()
    assert complete(site, checkout) == []


def test_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside of both")
    checkout = made(tmp_path / "checkout", {"LICENSE": ""})
    site = made(tmp_path / "site", {"web.html": '<a href="gone.html"><a href="../../secret">'})
    assert complete(site, checkout) == ["web.html: gone.html", "web.html: ../../secret"]


def test_a_page_loads_nothing_from_another_site(tmp_path: Path) -> None:
    site = made(tmp_path / "site", {"web.html": '<script src="https://example.org/shim"></script>'})
    lost = complete(site, made(tmp_path / "checkout", {"LICENSE": ""}))
    assert lost == ["web.html: https://example.org/shim"]
