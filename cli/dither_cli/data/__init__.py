"""Files that the demo and the default registry need: shipped with the package, so that a wheel can run them."""
