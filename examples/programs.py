"""A program outside Python as the handler: here this file itself, started as a warm program."""

import asyncio
import json
import sys

from windlass import Program, Windlass

app = Windlass("sqlite:///jobs.db")


@app.task(run_in=Program([sys.executable, __file__, "serve"], warm=True), timeout="30s")
def count_words(text: str) -> dict[str, int]:
    raise NotImplementedError  # the program does it


def serve() -> None:
    """Answer each line of standard input with one line of JSON."""
    for line in sys.stdin:
        request = json.loads(line)
        words = request["arguments"]["text"].split()
        counts = {word: words.count(word) for word in sorted(set(words))}
        print(json.dumps({"job": request["job"], "result": counts}), flush=True)


async def main() -> None:
    async with app, app.worker(slots=2):
        for text in ("to be or not to be", "so be it"):
            job = await count_words.enqueue(text)
            print(await job.result(timeout=30))


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        asyncio.run(main())
