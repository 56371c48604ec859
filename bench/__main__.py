"""`python -m bench` is `fragbench`."""

import sys

from bench.cli import main

sys.exit(main())
