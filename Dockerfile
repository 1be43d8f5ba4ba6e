# One image for the server and the estimator; docker-compose.yml says which of the two a container runs.

FROM python:3.11.14-slim-bookworm AS build

WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY protocol protocol
COPY client_sdk client_sdk
COPY server server
COPY estimator estimator
COPY cli cli
COPY load_tests load_tests
RUN python -m venv /opt/dither \
    && /opt/dither/bin/pip install --no-cache-dir --constraint constraints.txt ".[server,estimator]"

FROM python:3.11.14-slim-bookworm

# Nothing of the base image is needed to run as root, and nothing of ours may write to the image.
RUN groupadd --system --gid 10001 dither \
    && useradd --system --no-log-init --uid 10001 --gid dither --no-create-home --shell /usr/sbin/nologin dither
COPY --from=build /opt/dither /opt/dither

ENV PATH=/opt/dither/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

WORKDIR /app
USER dither
EXPOSE 8787

# Without proxies: the check must reach this container, whatever the environment says about proxies.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:8787/readyz', timeout=3)"]

CMD ["gunicorn", "-c", "python:dither_server.gunicorn_config", "dither_server.app:create_app_from_env()"]
