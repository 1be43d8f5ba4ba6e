"""The OpenAPI 3.1 document of this API, built from the constants that the routes themselves go by. Pure."""
