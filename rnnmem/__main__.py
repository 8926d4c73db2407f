"""``python -m rnnmem``."""

import sys

from rnnmem.cli import main

if __name__ == "__main__":
    sys.exit(main())
