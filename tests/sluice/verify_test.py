#!/usr/bin/env python3
"""End-to-end checks of `sluice verify`: verify_test.py SLUICE [PART OF A SENTENCE]."""

import sys

import verify_checks  # noqa: F401  registers its checks
from run_harness import main

if __name__ == "__main__":
    sys.exit(main())
