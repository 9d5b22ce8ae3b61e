"""Writes tests/data/heldout.txt: every 7th of the held-out chapters, as the trainer sees them.

    python3 tools/nano/write_heldout.py tests/data/heldout.txt
"""

import sys

import corpus

EVERY = 7


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    _, held_out = corpus.split_held_out(corpus.read_chapters())
    with open(sys.argv[1], "w", encoding="ascii", newline="\n") as out:
        out.write("".join(held_out[EVERY // 2 :: EVERY]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
