"""Long and hard runs against `dither serve` as an operator runs it: a soak, and a flash crowd."""
