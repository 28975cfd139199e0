"""Write the list anew, for a change of the interface that is meant; its diff says what changed."""

from __future__ import annotations

from tests.architecture.interface.parts import write

if __name__ == "__main__":
    write()
