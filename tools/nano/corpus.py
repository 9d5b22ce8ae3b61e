"""The text of the nano model: the King James Bible, as plain lines.

The text comes from Debian's `bible-kjv-text`, printed by the program `bible` of `bible-kjv`,
one verse per line behind a reference ("Ge1:1 In the beginning ...").  What the trainer sees has
no reference and no number: one verse per line, one empty line after each chapter.

Every 20th chapter (the 20th, the 40th, ... in canonical order) is held out and never trained on.

The translation of 1611 is in the public domain.
"""

import re
import subprocess
from typing import List, Tuple

HELD_OUT_EVERY = 20

_VERSE = re.compile(r"^([0-9]?[A-Za-z]+)([0-9]+):([0-9]+) (.*)$")


def read_chapters() -> List[str]:
    """All chapters in canonical order, each "verse\\nverse\\n...\\n\\n".

    Raises ValueError where a line is not a verse, and what `subprocess` raises if the program
    is not installed.
    """
    printed = subprocess.run(
        ["bible", "-f", "gen1:1-rev22:21"], check=True, stdout=subprocess.PIPE
    ).stdout.decode("ascii")
    chapters: List[List[str]] = []
    current = None
    for line_idx, line in enumerate(printed.splitlines()):
        match = _VERSE.match(line)
        if not match:
            raise ValueError(f"line {line_idx}: want 'Book1:1 text', found {line!r}")
        chapter = (match.group(1), match.group(2))
        if chapter != current:
            chapters.append([])
            current = chapter
        chapters[-1].append(match.group(4).strip())
    return ["\n".join(verses) + "\n\n" for verses in chapters]


def split_held_out(chapters: List[str]) -> Tuple[List[str], List[str]]:
    """(trained chapters, held-out chapters), both in canonical order."""
    train = [c for i, c in enumerate(chapters) if (i + 1) % HELD_OUT_EVERY != 0]
    held_out = [c for i, c in enumerate(chapters) if (i + 1) % HELD_OUT_EVERY == 0]
    return train, held_out
