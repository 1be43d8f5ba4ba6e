"""Privacy over many reports: what they add up to, by which bound, and under which assumption.

Import from the files themselves; this package loads none of them, since a device needs only `loss` and `renyi`.
"""
