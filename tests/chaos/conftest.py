import pytest

SUMMARY = pytest.StashKey[list[str]]()


@pytest.fixture
def summary(request: pytest.FixtureRequest) -> list[str]:
    """Lines that are shown at the end of the test run, whether or not it succeeds."""
    return request.config.stash.setdefault(SUMMARY, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show them: a run at random must say what it was."""
    for line in config.stash.get(SUMMARY, []):
        terminalreporter.write_line(line)
