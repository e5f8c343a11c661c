"""`python -m weft` is the command `weft`."""

import sys

from weft.cli.main import main

sys.exit(main())
