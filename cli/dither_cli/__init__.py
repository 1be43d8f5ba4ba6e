"""The `dither` command: puts the rooms together. Nothing imports it."""
