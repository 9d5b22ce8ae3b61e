#!/usr/bin/env python3
"""End-to-end checks of `sluice run`: run_test.py SLUICE [PART OF A SENTENCE]."""

import sys

import run_fault_checks  # noqa: F401  registers its checks
import run_flag_checks  # noqa: F401
import run_limit_checks  # noqa: F401
import run_output_checks  # noqa: F401
from run_harness import main

if __name__ == "__main__":
    sys.exit(main())
