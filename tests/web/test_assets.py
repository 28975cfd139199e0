"""Files for the browser: a fixed list, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import httpx
import pytest

from tests.web.fixtures import HOST, opened
from windlass import _web
from windlass._web.render.assets import Assets
from windlass.errors import ConfigError

FOLDER = Path(_web.__file__).parent / "assets"


async def test_every_file_that_a_page_names_is_there() -> None:
    async with opened() as room, await room.logged_in() as admin:
        page = (await admin.get("/queues")).text
        named = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)
        assert len(named) >= 12
        for url in named:
            answer = await admin.get(url)
            assert answer.status_code == 200, url
            assert answer.headers["content-type"].partition(";")[0] in {
                "text/css",
                "text/javascript",
                "image/svg+xml",
            }
            assert answer.headers["content-encoding"] == "gzip"


async def test_a_file_is_sent_uncompressed_to_clients_that_cannot_unpack() -> None:
    async with opened() as room, room.client() as browser:
        url = f"/assets/{room.dashboard.assets.name('vendor/htmx.min.js')}"
        answer = await browser.get(url, headers={"accept-encoding": "identity"})
        assert answer.content == (FOLDER / "vendor/htmx.min.js").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "../dashboard.py",
        "%2e%2e%2fdashboard.py",
        "..%5cdashboard.py",
        "%2e%2e/%2e%2e/config.py",
        "tokens.css%00.js",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "\\\\?\\c:\\x",
        "vendor/README.md",
        "README.md",
        "tokens.css",
        "vendor",
        "",
        ".",
    ],
)
async def test_no_name_leads_out_of_the_list(name: str) -> None:
    async with opened() as room, room.client() as browser:
        url = httpx.URL(f"http://{HOST}").copy_with(raw_path=b"/assets/" + name.encode())
        answer = await browser.get(url)
        assert answer.status_code == 404
        assert "windlass" not in answer.text.lower().replace("windlass</", "").replace(
            "· windlass", ""
        )


def test_another_content_has_another_name() -> None:
    one = Assets()
    assert re.fullmatch(r"live\.[0-9a-f]{12}\.js", one.name("live.js"))
    assert one.name("live.js") == Assets().name("live.js")
    with pytest.raises(ConfigError, match=r"live\.js"):
        one.name("life.js")


def test_packed_files_unpack_to_the_same() -> None:
    for asset in Assets()._by_name.values():
        assert gzip.decompress(asset.packed) == asset.content


def test_vendored_files_are_those_whose_source_and_sum_are_written_down() -> None:
    """The sums are of the released files: a file that was changed here is not theirs."""
    vendor = FOLDER / "vendor"
    readme = (vendor / "README.md").read_text(encoding="utf-8")
    lines = (vendor / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    found = {file.name for file in vendor.iterdir()} - {"README.md", "SHA256SUMS"}
    assert set(sums) == found
    for name in found:
        assert f"`{name}`" in readme, name
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == sums[name], name


def test_our_own_scripts_write_no_markup_and_evaluate_nothing() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    )
    for file in FOLDER.glob("*.js"):
        assert not forbidden.search(file.read_text(encoding="utf-8")), file.name
