"""The dashboard: what operators see in a browser. Rendered on the server, and kept up to date by a small script.

Its numbers come from the same functions as the API's; it never reads the store by ways of its own.
"""
