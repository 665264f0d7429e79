"""`python -m manyways`."""

import sys

from manyways.cli import main

if __name__ == "__main__":
    sys.exit(main())
