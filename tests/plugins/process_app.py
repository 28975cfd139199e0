"""An app with a plugin whose handlers run in child processes, which import it again."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugins.fakes import Mailer
from windlass import Context, Grants, Registrar, Windlass, current
from windlass.errors import NotGranted, ServiceMissing

app = Windlass("memory://", grace=0.2)
mailer = Mailer()
app.state = {"secret": 1}
app.services.attach("mailer", mailer)


class Heavy:
    """Does what it may, and tries what it may not, far from its worker."""

    name = "heavy"

    def register(self, registrar: Registrar) -> None:
        @registrar.task
        async def note(word: str) -> None: ...

        @registrar.task(run_in="process", max_attempts=1)
        async def probe(ctx: Context) -> list[str]:
            said = []
            ways: list[Callable[[], object]] = [
                lambda: ctx.state,
                lambda: current().state,
                lambda: ctx.services.get("bank"),
                lambda: ctx.services.need("clock"),
            ]
            for way in ways:
                try:
                    way()
                except (NotGranted, ServiceMissing) as error:
                    said.append(error.code)
            for call in (note.options(queue="vip").call("x"), host.call()):
                try:
                    await ctx.enqueue(call)
                except Exception as error:  # noqa: BLE001 -- the worker's answer is one of its own
                    said.append(str(error).partition(",")[0])
            await ctx.enqueue(note.options(queue="mail", tags=["mine"]).call("x"))
            ctx.services.need("mailer", Mailer).send("ada")
            return [*said, *ctx.services.names]


@app.task(name="host.task")
async def host() -> None: ...


app.install(
    Heavy(), grants=Grants(tasks=True, queues=["default", "mail"], services=["mailer", "clock"])
)
