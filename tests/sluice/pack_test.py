#!/usr/bin/env python3
"""End-to-end checks of `sluice pack`: pack_test.py SLUICE [PART OF A SENTENCE]."""

import sys

import pack_checks  # noqa: F401  registers its checks
import pack_kill_checks  # noqa: F401
from run_harness import main

if __name__ == "__main__":
    sys.exit(main())
