"""`python -m bayesify` is the `bayesify` command."""

import sys

from bayesify.cli import main

if __name__ == "__main__":
    sys.exit(main())
