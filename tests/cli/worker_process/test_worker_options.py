"""Options: what they mean, what is refused, and that children get the same ones."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._cli.commands.worker import worker
from windlass._cli.worker_process.worker_options import WorkerOptions
from windlass.errors import ConfigError, WindlassError


def plan(**options: Any) -> WorkerOptions:
    return WorkerOptions(target="shop:app", **options)


def test_queues_without_numbers_share_the_slots() -> None:
    options = plan(queues=("mail", "default"), slots=20).worker_options()
    assert options["queues"] == ("mail", "default")
    assert (options["slots"], options["order"]) == (20, "strict")


def test_queues_with_numbers_have_slots_of_their_own() -> None:
    assert plan(queues=("mail=10", "default=40")).worker_options()["queues"] == {
        "mail": 10,
        "default": 40,
    }


def test_a_queue_may_hold_an_equals_sign() -> None:
    assert plan(queues=("a=b=3",)).worker_options()["queues"] == {"a=b": 3}


def test_without_queues_the_app_decides() -> None:
    assert "queues" not in plan().worker_options()
    assert "slots" not in plan().worker_options()


async def test_other_queues_of_tasks_are_served_after_those_that_are_named() -> None:
    app = Windlass("memory://")

    @app.task(queue="mail")
    async def mail() -> str:
        return "sent"

    @app.task(queue="urgent")
    async def urgent() -> None: ...

    options = plan(queues=("urgent",), others=True, weights=("mail=3",)).worker_options()
    assert parts_of(app).workers.settings(**options).served == ("urgent", "default", "mail")
    assert parts_of(app).workers.settings(queues=["urgent"]).served == ("urgent",)
    with pytest.raises(ConfigError, match="share their slots"):
        parts_of(app).workers.settings(queues={"urgent": 2}, others=True)
    async with app, app.worker(queues="urgent", others=True):
        assert await (await mail.enqueue()).result(timeout=20) == "sent"


def test_a_weight_selects_weighted_order() -> None:
    options = plan(queues=("mail", "default"), weights=("mail=3",)).worker_options()
    assert (options["order"], options["weights"]) == ("weighted", {"mail": 3})


def test_the_grace_period_is_a_duration() -> None:
    assert plan(grace="5m").grace_period() == timedelta(minutes=5)
    assert plan().grace_period() is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queues": ("mail=10", "default")}, "give every --queue its slots"),
        ({"queues": ("mail", "mail")}, "--queue names 'mail' twice"),
        ({"queues": ("mail=0",)}, "SLOTS must be a whole number from 1, got '0'"),
        ({"queues": ("mail=many",)}, "SLOTS must be a whole number from 1, got 'many'"),
        (
            {"queues": ("mail,default=3",)},
            "takes one queue, got mail,default=3: write --queue mail --queue default=3",
        ),
        ({"queues": ("ma il",)}, "printable characters without spaces"),
        ({"queues": ("mail=3",), "slots": 5}, "does not go with --slots"),
        ({"queues": ("mail=3",), "order": "weighted"}, "NAME=SLOTS does not go with"),
        ({"queues": ("mail=3",), "others": True}, "NAME=SLOTS does not go with"),
        ({"weights": ("mail",)}, "--weight takes NAME=N, for example --weight mail=3"),
        ({"weights": ("mail=2", "mail=3")}, "--weight names 'mail' twice"),
        ({"weights": ("mail=2",), "order": "strict"}, "--weight needs --order weighted"),
        ({"queues": ("mail",), "weights": ("mial=2",)}, "Did you mean 'mail'?"),
        ({"grace": "soon"}, "--grace must be a duration such as 250ms, 30s"),
    ],
)
def test_invalid_worker_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(WindlassError, match=re.escape(says)):
        plan(**options)


def test_children_get_the_options_their_supervisor_got(monkeypatch: pytest.MonkeyPatch) -> None:
    given = plan(
        queues=("mail", "default"),
        weights=("mail=3",),
        slots=7,
        order="weighted",
        until_empty=True,
        others=True,
        max_jobs=5,
        max_megabytes=300,
        grace="5s",
        log_level="debug",
        log_format="json",
        health_host="::1",
        health_port=9100,
        metrics_port=9200,
        health_file="/run/alive",
    )
    received: list[WorkerOptions] = []

    def serve(plan: WorkerOptions, child: object = None) -> int:
        received.append(plan)
        return 0

    monkeypatch.setattr("windlass._cli.worker_process.process.serve", serve)
    _, *arguments = given.arguments()
    ended = CliRunner().invoke(worker, arguments, standalone_mode=False)
    assert ended.exception is None, ended.output
    assert received == [given]
