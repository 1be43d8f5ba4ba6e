"""The Dither SDK."""

from dither_client.sampling import randomize as randomize
