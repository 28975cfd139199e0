"""How a child process came to its end, in words that are stored with the job it was running."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec

__all__ = ["ExitReason", "ProcessMemory", "memory_of", "own_peak"]

_HINTS = {  # by name: clients on systems without these signals import this, too
    "SIGSEGV": " (a crash in native code)",
    "SIGBUS": " (a crash in native code)",
    "SIGILL": " (a crash in native code)",
    "SIGABRT": " (native code aborted)",
    "SIGKILL": " (out of memory, or kill -9)",
}


class ProcessMemory(msgspec.Struct, frozen=True):
    """The memory of a process, in KiB."""

    now: int
    peak: int


def memory_of(pid: int) -> ProcessMemory | None:
    """Return the memory of another process; None where the system does not say, or it is dead."""
    if sys.platform != "linux":
        return None
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    kib = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in text.splitlines())
        if name in ("VmRSS", "VmHWM")
    }
    if len(kib) < 2:
        return None  # a zombie has none left
    return ProcessMemory(now=kib["VmRSS"], peak=kib["VmHWM"])


def own_peak() -> int:
    """Return the most memory that this process ever used, in KiB."""
    import resource  # noqa: PLC0415 -- not every system that imports this module has it

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 if sys.platform == "darwin" else 1)


class ExitReason(msgspec.Struct, frozen=True, kw_only=True):
    """The known facts about the exit of a process."""

    code: int | None
    """As `subprocess` counts: negative is a signal. None: another part of the program
    collected it.
    """
    peak: int | None
    """Most memory it ever used, in KiB."""
    limit: int | None = None
    """The memory limit in MiB that it was ended for."""
    silent: bool = False
    """It closed the line to its worker and was ended for that."""
    who: str = "the child process"
    early: bool = True
    """It should have lived on after the job."""

    @property
    def words(self) -> str:
        """One sentence, without its end."""
        if self.limit is not None:
            said = f"was killed because it used more than child_memory_limit={self.limit} MiB"
        elif self.silent:
            said = "closed the connection to its worker and was killed"
        elif self.code is None:
            said = "has ended (other code collected its exit code)"
        elif self.code < 0:
            name = _name(-self.code)
            said = f"was killed by {name}{_HINTS.get(name, '')}"
        else:
            said = f"ended with exit code {self.code}{' before the job did' * self.early}"
        peak = "" if self.peak is None else f"; its peak memory was {self.peak / 1024:.0f} MiB"
        return f"{self.who} {said}{peak}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
