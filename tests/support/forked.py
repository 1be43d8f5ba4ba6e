"""What a forked child of this very process finds."""

import json
import os
import traceback
from collections.abc import Callable
from typing import Any


def answer_of_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a forked child, by way of JSON. Fails with the child's traceback where it raises."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                answer = {"answer": work()}
            except BaseException:
                answer = {"trouble": traceback.format_exc()}
            os.write(writing, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    answer = json.loads(text)
    assert "trouble" not in answer, answer["trouble"]
    return answer["answer"]
