"""Tasks, a worker inside the same program, and a result."""

import asyncio
from datetime import timedelta

from windlass import Backoff, Windlass

app = Windlass("sqlite:///jobs.db")


@app.task(timeout=timedelta(seconds=30), backoff=Backoff.exponential(first=1))
async def send_email(to: str, *, subject: str) -> str:
    return f"sent {subject!r} to {to}"


@app.task(max_attempts=3)
def make_thumbnail(path: str, width: int = 200) -> str:  # a plain function: runs on a thread
    return f"{path}, {width} pixels wide"


async def main() -> None:
    async with app, app.worker():
        mail = await send_email.enqueue("ada@example.org", subject="Welcome")
        image = await make_thumbnail.options(priority=-1).enqueue("cover.png", width=100)
        print(await mail.result(timeout=10))
        print(await image.result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
