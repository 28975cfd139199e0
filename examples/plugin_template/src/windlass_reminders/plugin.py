"""The plugin: what it brings, and nothing that happens before it is asked to."""

from windlass import Backoff, Context, Cron, Registrar
from windlass_reminders.host import Notifier

SERVICE = "notifier"


class Reminders:
    """Reminds users every morning of what they have left to do."""

    name = "reminders"

    def register(self, registrar: Registrar) -> None:
        """Two tasks: one that finds out who is to be reminded, and one for each of them."""
        registrar.service(SERVICE)

        @registrar.task(timeout=30, max_attempts=3, backoff=Backoff.fixed(60))
        async def remind(ctx: Context, user: str, text: str) -> None:
            """One reminder. It is tried three times, a minute apart."""
            notifier = ctx.services.need(SERVICE, Notifier)
            await notifier.notify(user, f"Do not forget: {text}")

        @registrar.schedule(Cron("0 8 * * *"))
        @registrar.task(concurrency=1, timeout=300)
        async def morning(ctx: Context) -> int:
            """Enqueues the reminders of the day, if there is anybody to ask."""
            notifier = ctx.services.get(SERVICE, Notifier)
            if notifier is None:
                return 0
            reminders = notifier.open_tasks()
            for user, text in reminders:
                await ctx.enqueue(remind.call(user, text))
            return len(reminders)
