"""Empty claims: the fixed price of a call on Redis.

The scripts are loaded once as a library of functions. Where a server has no functions, each call
calls its script by `EVALSHA`, which makes all shared functions again. What is compared is the time
that the server spends in the script of a claim that finds nothing, in both forms on one server. The
round trip, the same in both, is left out.
"""

from __future__ import annotations

from benchmarks.child import answer, child, requests
from benchmarks.figure import Figure, Target
from benchmarks.figures.flat import enlist
from benchmarks.stage import Stage, alternate
from benchmarks.worker import App
from windlass._app.parts import parts_of
from windlass._storage.protocol.jobs import Want

__all__ = ["claim_nothing", "measure"]

FUNCTIONS, SCRIPTS = "functions", "EVALSHA"


async def measure(stage: Stage) -> list[Figure]:
    """Measure the server's time for a claim that finds nothing, in both forms."""
    sizes, place, listener = stage
    if place.backend != "redis":
        return []
    claims = sizes.single_enqueues * 4

    async def cost(options: str) -> float:
        with place.scratch() as url:
            async with child(claim_nothing, url=url + options) as claiming:
                await claiming.hear()
                before = _script_us(url)
                await claiming.ask(claims)
                return (_script_us(url) - before) / claims

    ways = {SCRIPTS: lambda: cost("?functions=off"), FUNCTIONS: lambda: cost("")}
    rounds = await alternate(sizes.rounds, ways, listener)
    return [
        Figure(
            name="empty_claim",
            title="server, one claim that finds nothing",
            measured=rounds[FUNCTIONS],
            unit="µs",
            yardstick=rounds[SCRIPTS],
            yardstick_name=SCRIPTS,
            target=Target("at most", 0.5, "ratio"),
            note=f"{claims:,} claims a round, {rounds.spread(FUNCTIONS)}",
        )
    ]


def _script_us(url: str) -> float:
    """Return the microseconds that the server has spent in scripts and functions so far."""
    import redis  # noqa: PLC0415 -- processes that are measured import this module

    with redis.Redis.from_url(url) as connection:
        found: dict[str, dict[str, float]] = connection.info("commandstats")
    return sum(
        found[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_fcall") if name in found
    )


async def claim_nothing(url: str) -> None:
    """Claim from an empty queue as often as each request says."""
    app = App(url).windlass
    storage = await parts_of(app).storage()
    await enlist(storage, ["default"])
    answer("ready")
    async for count in requests():
        for _ in range(count):
            await storage.jobs.claim("w-bench", [Want("default", 10)], total=10)
        answer("done")
    await app.close()
