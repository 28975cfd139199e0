"""Django Tasks, run by Windlass: nothing but the settings knows it.

Before Django 6: ``from django_tasks import task``, and "django_tasks" in INSTALLED_APPS.
"""

import django
from django.conf import settings

own = django.VERSION >= (6,)
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    INSTALLED_APPS=["windlass.integrations.django", *([] if own else ["django_tasks"])],
    WINDLASS={"URL": "sqlite:///jobs.db"},
    TASKS={"default": {"BACKEND": "windlass.integrations.django.tasks.WindlassBackend"}},
)
django.setup()

if own:
    from django.tasks import task
else:
    from django_tasks import task  # type: ignore[no-redef]

from windlass.integrations.django import get_app  # noqa: E402


@task(priority=10)
def send_receipt(order: int) -> str:
    return f"receipt for order {order} sent"


async def work(job: str) -> None:
    async with get_app().worker():
        await get_app().job(job).result(timeout=10)


if __name__ == "__main__":
    result = send_receipt.enqueue(order=7)
    get_app().blocking.run(work(result.id))
    result.refresh()
    print(result.status, result.return_value)
