"""Byte-level BPE in the layout of `tiktoken.model`: learning, encoding, decoding.

Ranks 0..255 are the single bytes in GPT-2 order (model page 5.1); further ranks are learned.
The text is cut into chunks by the K3 pattern (model page 5.3) and merged inside chunks only.
This file implements the pattern for ASCII text, which is all that the corpus holds, and refuses
anything else rather than split it differently from a full implementation.
"""

import base64
import re
from collections import Counter, defaultdict
from typing import Dict, List, Sequence, Tuple

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN = re.compile(
    r"[^\r\nA-Za-z0-9]?[A-Z]*[a-z]+" + _CONTRACTION
    + r"|[^\r\nA-Za-z0-9]?[A-Z]+[a-z]*" + _CONTRACTION
    + r"|[0-9]{1,3}"
    + r"| ?[^\sA-Za-z0-9]+[\r\n]*"
    + r"|\s*[\r\n]+"
    + r"|\s+(?!\S)"
    + r"|\s+",
    re.ASCII,
)


def byte_order() -> List[int]:
    """The byte of each of the first 256 ranks (model page 5.1)."""
    runs = [(0x21, 0x7E), (0xA1, 0xAC), (0xAE, 0xFF), (0x00, 0x20), (0x7F, 0xA0), (0xAD, 0xAD)]
    return [b for first, last in runs for b in range(first, last + 1)]


def split_ascii(text: str) -> List[str]:
    """Chunks of `text`; their concatenation is `text`.  Raises ValueError unless ASCII."""
    if not text.isascii():
        raise ValueError("split_ascii: the text holds characters beyond ASCII")
    return _PATTERN.findall(text)


def learn(text: str, n_ranks: int) -> List[bytes]:
    """Tokens by rank: the 256 bytes, then the most frequent pair, again and again.

    Equal counts are decided by the smaller pair of byte strings, so the result is reproducible.
    """
    words = Counter(split_ascii(text))
    parts = [[bytes([b]) for b in word.encode()] for word in words]
    counts = list(words.values())
    pair_count: Counter = Counter()
    pair_words = defaultdict(set)
    for w, part in enumerate(parts):
        for pair in zip(part, part[1:]):
            pair_count[pair] += counts[w]
            pair_words[pair].add(w)
    tokens = [bytes([b]) for b in byte_order()]
    known = set(tokens)
    while len(tokens) < n_ranks:
        best = min(pair_count, key=lambda p: (-pair_count[p], p))
        merged = best[0] + best[1]
        if merged not in known:  # two pairs may concatenate to one token
            known.add(merged)
            tokens.append(merged)
        for w in list(pair_words[best]):
            part = parts[w]
            for pair in zip(part, part[1:]):
                pair_count[pair] -= counts[w]
                if pair_count[pair] <= 0:
                    del pair_count[pair]
            part = _merge_all(part, best, merged)
            parts[w] = part
            for pair in zip(part, part[1:]):
                pair_count[pair] += counts[w]
                pair_words[pair].add(w)
        pair_words.pop(best, None)
        pair_count.pop(best, None)
    return tokens


def _merge_all(part: List[bytes], pair: Tuple[bytes, bytes], merged: bytes) -> List[bytes]:
    out, i = [], 0
    while i < len(part):
        if i + 1 < len(part) and part[i] == pair[0] and part[i + 1] == pair[1]:
            out.append(merged)
            i += 2
        else:
            out.append(part[i])
            i += 1
    return out


class Tokenizer:
    """Plain-mode encoding (model page 5.2) and decoding over a list of tokens by rank."""

    def __init__(self, tokens: Sequence[bytes]):
        self.tokens = list(tokens)
        self._rank: Dict[bytes, int] = {t: i for i, t in enumerate(self.tokens)}
        self._cache: Dict[str, List[int]] = {}

    def encode(self, text: str) -> List[int]:
        ids: List[int] = []
        for chunk in split_ascii(text):
            found = self._cache.get(chunk)
            if found is None:
                found = self._cache[chunk] = self._encode_chunk(chunk.encode())
            ids.extend(found)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`; ids beyond the ranks (special tokens) add nothing."""
        parts = [self.tokens[i] for i in ids if i < len(self.tokens)]
        return b"".join(parts).decode("utf-8", errors="replace")

    def _encode_chunk(self, chunk: bytes) -> List[int]:
        if chunk in self._rank:
            return [self._rank[chunk]]
        part = [bytes([b]) for b in chunk]
        while len(part) > 1:
            ranks = [self._rank.get(a + b, 1 << 30) for a, b in zip(part, part[1:])]
            best = min(ranks)
            if best == 1 << 30:
                break
            i = ranks.index(best)
            part[i : i + 2] = [part[i] + part[i + 1]]
        return [self._rank[p] for p in part]


def write_tiktoken(path: str, tokens: Sequence[bytes]) -> None:
    with open(path, "w", encoding="ascii", newline="\n") as out:
        for rank, token in enumerate(tokens):
            out.write(f"{base64.b64encode(token).decode()} {rank}\n")


def read_tiktoken(path: str) -> List[bytes]:
    tokens = []
    with open(path, encoding="ascii") as lines:
        for line_idx, line in enumerate(lines):
            token, rank = line.split()
            if int(rank) != line_idx:
                raise ValueError(f"{path}: line {line_idx} holds rank {rank}")
            tokens.append(base64.b64decode(token))
    return tokens
