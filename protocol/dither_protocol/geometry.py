"""Points of the projective space PG(t-1, F_r), r a prime: vectors of t coordinates with first nonzero one 1.

They are numbered in lexicographic order: (0, ..., 0, 1) is point 0, then (0, ..., 1, 0), and so on. The points
with k free coordinates after their leading 1 begin at number (r^k - 1)/(r - 1).
"""

from collections.abc import Sequence


def point(number: int, r: int, t: int) -> list[int]:
    """The coordinates of point ``number`` of PG(t-1, F_r)."""
    free, size = 0, 1
    while number >= size:
        number -= size
        size *= r
        free += 1
    coordinates = [0] * t
    coordinates[t - 1 - free] = 1
    for place in range(t - 1, t - 1 - free, -1):
        number, coordinates[place] = divmod(number, r)
    return coordinates


def rank(coordinates: Sequence[int], r: int) -> int:
    """The number of a point; the inverse of `point`."""
    lead = next(place for place, value in enumerate(coordinates) if value)
    free = len(coordinates) - 1 - lead
    number = 0
    for value in coordinates[lead + 1 :]:
        number = number * r + value
    return int((r**free - 1) // (r - 1)) + number


def normalized(vector: Sequence[int], r: int) -> list[int]:
    """The multiple of a nonzero vector whose first nonzero coordinate is 1."""
    lead = next(value for value in vector if value)
    inverse = pow(lead, -1, r)
    return [value * inverse % r for value in vector]
