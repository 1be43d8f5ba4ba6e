"""Stands in a test for a service that a signal may stop."""


class Asked:
    """Notes what a signal handler asks for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def request_stop(self) -> None:
        """First signal."""
        self.calls.append("stop")

    def hasten(self) -> None:
        """Second signal."""
        self.calls.append("hasten")
