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
    checkout = made(tmp_path / "checkout", {"examples/chat.py": "print()", "SECURITY.md": "# Safe"})
    links = [
        '<a class="x" href="../examples/chat.py">',
        '<a href="../SECURITY.md#whom">',
        '<a href="..">',
        '<a href="#here">',
        '<a href="https://example.org/">',
        '<img src="../soak%20one.svg?v=1">',
    ]
    page = {"api/index.html": "".join(links), "soak one.svg": "<svg/>", "index.html": ""}
    site = made(tmp_path / "site", page)
    assert complete(site, checkout) == []
    assert (site / "examples/chat.py").read_text() == "print()"
    assert (site / "SECURITY.md").is_file()


def test_links_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside of both")
    checkout = made(tmp_path / "checkout", {"LICENSE": ""})
    site = made(tmp_path / "site", {"web/index.html": '<a href="../gone/"><a href="../../secret">'})
    assert complete(site, checkout) == ["web/index.html: ../gone/", "web/index.html: ../../secret"]
