"""``python -m windlass`` is ``windlass``."""

import sys

from windlass.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
