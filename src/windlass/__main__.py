"""``python -m windlass`` is ``windlass``."""

import sys

from windlass._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
