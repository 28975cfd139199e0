"""Plugins of installed packages: loaded when the settings name them, and never otherwise."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass import Grants, Windlass
from windlass._app.parts import parts_of
from windlass._plugins.entry_points import installable
from windlass.errors import ConfigError, NotGranted

MODULE = """
loaded = True

class Offered:
    '''Brings one task.'''
    name = "offered"

    def register(self, registrar):
        @registrar.task
        async def work() -> int:
            return 42

def make():
    return Offered()

made = Offered()

class Other(Offered):
    name = "somebody_else"
"""

Offer = Callable[..., str]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Install a package that offers plugins, for this test; the answer is its module."""

    def install(**points: str) -> str:
        module = f"offering_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{module}.py").write_text(MODULE)
        dist = tmp_path / f"{module}-1.dist-info"
        dist.mkdir()
        (dist / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        lines = [f"{name} = {module}:{where}" for name, where in points.items()]
        (dist / "entry_points.txt").write_text("\n".join(["[windlass.plugins]", *lines, ""]))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setitem(sys.modules, module, None)  # put back as it was at the end
        del sys.modules[module]
        return module

    return install


GRANTS = Grants(tasks=True, queues=["default"])


async def test_a_plugin_is_loaded_when_the_settings_name_it(offer: Offer) -> None:
    module = offer(offered="Offered")
    app = Windlass("memory://", plugins={"offered": GRANTS})
    async with app.worker():
        job = await app.tasks["offered.work"].enqueue()
        assert await job.result(timeout=30) == 42
    assert app.plugins["offered"].grants == GRANTS
    assert module in sys.modules
    parts_of(app).load()  # again changes nothing


def test_one_that_the_settings_do_not_name_is_not_even_imported(offer: Offer) -> None:
    module = offer(offered="Offered")
    assert "offered" in installable()
    app = Windlass("memory://")
    parts_of(app).load()
    assert list(app.plugins) == ["windlass"]
    assert module not in sys.modules


@pytest.mark.parametrize("where", ["Offered", "make", "made"])
def test_an_entry_point_is_a_class_a_function_or_an_object(offer: Offer, where: str) -> None:
    offer(offered=where)
    app = Windlass("memory://", plugins={"offered": GRANTS})
    parts_of(app).load()
    assert app.tasks.names == ["offered.work"]


def test_grants_come_from_the_file(offer: Offer, tmp_path: Path) -> None:
    offer(offered="Offered")
    file = tmp_path / "windlass.toml"
    file.write_text(
        "[windlass]\nurl = 'memory://'\n"
        "[windlass.plugins.offered]\ntasks = true\nqueues = ['slow']\nmax_running = 3\n"
    )
    app = Windlass(config=file)
    parts_of(app).load()
    assert app.plugins["offered"].grants == Grants(tasks=True, queues=["slow"], max_running=3)
    assert app.tasks["offered.work"].settings.queue == "slow"


def test_a_name_alone_grants_nothing_and_the_refusal_says_what_to_grant(offer: Offer) -> None:
    offer(offered="Offered")
    app = Windlass("memory://", plugins=["offered"])
    with pytest.raises(NotGranted, match="tasks=True"):
        parts_of(app).load()
    assert list(app.plugins) == ["windlass"]


def test_a_plugin_that_cannot_be_loaded_gives_the_reason(offer: Offer) -> None:
    offer(offered="Nobody", mismatched="Other", gone="nowhere.at.all")
    for name, words in (
        ("ofered", "Did you mean 'offered'"),
        ("offered", "Nobody"),
        ("mismatched", "a plugin named 'somebody_else'"),
        ("gone", "cannot be loaded"),
    ):
        with pytest.raises(ConfigError, match=words):
            parts_of(Windlass("memory://", plugins={name: GRANTS})).load()


@pytest.mark.parametrize(
    "wrong",
    [
        {"mail": {"task": True}},
        {"mail": {"queues": "mail"}},
        {"mail": {"max_running": 0}},
        {"mail": True},
        5,
        "mail",
        '{"mail": ',
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="plugins must be a table"):
        Windlass("memory://", plugins=wrong)  # type: ignore[arg-type]


def test_a_plugin_that_the_host_installed_is_not_loaded_again(offer: Offer) -> None:
    module = offer(offered="Offered")
    app = Windlass("memory://", plugins={"offered": GRANTS})
    app.install(importlib.import_module(module).Offered(), grants=Grants(tasks=True, queues=["x"]))
    parts_of(app).load()
    assert app.plugins["offered"].grants.queues == ("x",)
