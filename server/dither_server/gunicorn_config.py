"""gunicorn's settings, from the same variables as the application.

``gunicorn -c python:dither_server.gunicorn_config`` needs nothing else.

Threads do not stand slow clients: in front of the open internet belongs a proxy that buffers requests.
"""

import os
from logging.config import dictConfig
from typing import Any

from gunicorn.glogging import Logger

from dither_server.logs import log_config
from dither_server.settings import ConfigurationError, Settings

try:
    _settings = Settings.from_env(os.environ)
except ConfigurationError as error:
    raise SystemExit(f"dither: {error}") from None


class CleanLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's logger with our lines; its own ``logconfig_dict`` would switch the access log on."""

    def setup(self, cfg: Any) -> None:
        """Called at the start and at each reload."""
        super().setup(cfg)
        dictConfig(log_config(_settings.log))


logger_class = CleanLogger
wsgi_app = "dither_server.app:create_app_from_env()"
bind = _settings.bind
worker_class = "dither_server.gunicorn_worker.ProblemWorker"
workers = _settings.workers
threads = _settings.threads
max_requests = _settings.max_requests
max_requests_jitter = _settings.max_requests_jitter
preload_app = False  # each worker makes its own connections to the store

timeout = 30  # seconds without a sign of life after which a worker is replaced
graceful_timeout = 10  # seconds that requests under way have at a stop
keepalive = 15  # seconds that an idle connection is kept

limit_request_line = 2_048
limit_request_fields = 50
limit_request_field_size = 4_096

accesslog = None  # an access log is a list of addresses and times
access_log_format = (
    '"%(m)s %(U)s" %(s)s %(B)s'  # whoever wants one: no address, no query, which may hold a token
)
errorlog = "-"
control_socket_disable = True  # it would be one more file in somebody's home, and one more way in
