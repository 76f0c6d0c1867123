# SPDX-License-Identifier: MIT
"""The longest common subsequence of two lists.

Source: Myers, An O(ND) Difference Algorithm and Its Variations, 1986."""


def common(a, b):
    """Returns (i, j) with a[i] == b[j], as many as keep their order."""
    furthest, rounds = {1: 0}, []  # i by i - j, after each number of edits
    for edits in range(len(a) + len(b) + 1):
        rounds.append(dict(furthest))
        for ahead in range(-edits, edits + 1, 2):
            i, before = _before(furthest, ahead, edits)
            i += before < ahead  # the edit skips an element of a
            while i < len(a) and i - ahead < len(b) and a[i] == b[i - ahead]:
                i += 1
            furthest[ahead] = i
            if i >= len(a) and i - ahead >= len(b):
                return _walked_back(rounds, i, ahead)


def _before(furthest, ahead, edits):
    """Returns i before the last edit, and i - j there."""
    skips_b = ahead == -edits or (ahead != edits and furthest[ahead - 1] < furthest[ahead + 1])
    ahead += 1 if skips_b else -1
    return furthest.get(ahead, 0), ahead


def _walked_back(rounds, i, ahead):
    pairs = []
    for edits in range(len(rounds) - 1, -1, -1):
        end, before = _before(rounds[edits], ahead, edits)
        first = end + (before < ahead)
        pairs[:0] = [(k, k - ahead) for k in range(first, i)]
        i, ahead = end, before
    return pairs
