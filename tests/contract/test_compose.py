import hashlib
import json
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from dither_protocol.wire import MAX_BODY_BYTES

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
NGINX = re.sub(r"#.*", "", (ROOT / "deploy/nginx.conf").read_text(encoding="utf-8"))
PINNED = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+(-[a-z0-9.-]+)?")


def _instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} +(.*)$", DOCKERFILE, re.MULTILINE)


def _directives(name: str) -> list[str]:
    return [re.sub(r"\s+", " ", value) for value in re.findall(rf"(?<!\S){name}\s+([^;{{]*);", NGINX)]


def test_the_four_services() -> None:
    """The service is a store, a server, an estimator and a proxy."""
    assert set(SERVICES) == {"valkey", "server", "estimator", "nginx"}


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--appendonly", "yes"),
        ("--appendfsync", "always"),
        ("--maxmemory", "512mb"),
        ("--maxmemory-policy", "noeviction"),
        ("--dir", "/data"),
    ],
)
def test_store_is_durable(flag: str, value: str) -> None:
    """The store has what is acknowledged on disk, and never evicts."""
    command = SERVICES["valkey"]["command"]
    assert command[0] == "valkey-server"
    assert all(isinstance(word, str) for word in command), "YAML must not read yes as true"
    assert command[command.index(flag) + 1] == value


def test_store_keeps_its_data_in_a_volume() -> None:
    """Data outlives the container."""
    assert SERVICES["valkey"]["volumes"] == ["store:/data"]
    assert "store" in COMPOSE["volumes"]


def test_only_nginx_publishes_a_port() -> None:
    """One service is reachable from outside, and only from this machine; the others cannot reach out."""
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["nginx"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["nginx"]["ports"])
    assert not any(service.get("network_mode") for service in SERVICES.values())
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert all(SERVICES[name]["networks"] == ["inside"] for name in SERVICES if name != "nginx")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_has_a_health_check(name: str) -> None:
    """Each service says whether it works, by a command without a shell, with limits, and is restarted."""
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= set(check)
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", ["server", "estimator"])
def test_python_of_health_checks_compiles(name: str) -> None:
    """The one-line programs of the health checks are Python."""
    check = SERVICES[name]["healthcheck"]["test"]
    assert check[1:3] == ["python", "-c"]
    compile(check[3], name, "exec")


def test_health_check_of_image_and_compose_are_one() -> None:
    """The server is asked the same question with and without Compose."""
    (found,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert json.loads(found) == SERVICES["server"]["healthcheck"]["test"][1:]
    assert "/readyz" in found


def test_services_wait_for_what_they_need() -> None:
    """Nothing starts before what it depends on is healthy."""
    needs = {
        name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    assert needs == {
        "valkey": {},
        "server": {"valkey": "service_healthy"},
        "estimator": {"valkey": "service_healthy"},
        "nginx": {"server": "service_healthy"},
    }


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_images_are_pinned(name: str) -> None:
    """Every image has a full version, and our own that of the distribution."""
    image = SERVICES[name]["image"]
    assert PINNED.fullmatch(image)
    if "build" in SERVICES[name]:
        version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        assert version
        assert image == f"dither:{version[1]}"


def test_server_and_estimator_share_one_store() -> None:
    """Both have the same image and the same store, and the server has its registry and keys mounted."""
    server, estimator = SERVICES["server"], SERVICES["estimator"]
    assert server["image"] == estimator["image"]
    assert server["environment"]["DITHER_STORE_URL"] == estimator["environment"]["DITHER_STORE_URL"]
    assert server["environment"]["DITHER_REGISTRY"] in [each["target"] for each in server["configs"]]
    assert server["environment"]["DITHER_KEYS_FILE"] == "/run/secrets/" + server["secrets"][0]
    assert estimator["command"] == ["python", "-m", "dither_estimator.worker"]


def test_mounted_files_exist() -> None:
    """Files that are mounted are in the repository; the keys are made by the operator and never committed."""
    for config in COMPOSE["configs"].values():
        assert (ROOT / config["file"]).is_file()
    keys = COMPOSE["secrets"]["keys"]["file"].removeprefix(".")
    assert keys in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("name", ["server", "estimator"])
def test_our_containers_can_do_little(name: str) -> None:
    """Our processes write nothing into the image and have no capabilities."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_dockerfile_follows_the_rules() -> None:
    """Pinned base images, absolute folders, no cache, commands as JSON, and not as root."""
    bases = [line.split()[0] for line in _instructions("FROM")]
    assert bases
    assert all(PINNED.fullmatch(base) for base in bases)
    assert all(folder.startswith("/") for folder in _instructions("WORKDIR"))
    assert all(json.loads(command) for command in _instructions("CMD"))
    assert _instructions("USER")[-1] not in ("root", "0")
    assert not _instructions("ADD")
    for run in _instructions("RUN"):
        assert "sudo" not in run
        if "pip install" in run:
            assert {"--no-cache-dir", "--constraint", "constraints.txt"} <= set(shlex.split(run))


def test_dockerfile_copies_what_the_context_has() -> None:
    """Whatever the image is built from gets past .dockerignore, and every root of the distribution is there."""
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        source for line in _instructions("COPY") if "--from" not in line for source in shlex.split(line)[:-1]
    ]
    assert "*" in ignore
    assert all(f"!{source}" in ignore for source in copied)
    roots = re.findall(r'^    "(\w+)/dither_\w+",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert len(roots) == 6
    assert set(roots) <= set(copied)


def test_nginx_buffers_requests_within_the_limits_of_the_wire() -> None:
    """A slow client costs no thread; the largest body passes, stays in memory, and a larger one is refused."""
    assert _directives("proxy_request_buffering") == ["on"]
    assert _directives("client_max_body_size") == _directives("client_body_buffer_size") == ["1m"]
    assert MAX_BODY_BYTES == 1 << 20


def test_nginx_knows_no_addresses() -> None:
    """No address of a device is logged or passed on, not even one that another proxy noted."""
    assert _directives("access_log") == ["off"]
    assert _directives("error_log") == ["/dev/stderr emerg"]
    assert not re.search(r"\$(binary_)?remote_|\$proxy_add_x_forwarded_for|\$http_x_|realip", NGINX)
    removed = {value.split()[0] for value in _directives("proxy_set_header") if value.endswith('""')}
    assert {"X-Forwarded-For", "X-Real-IP", "Forwarded", "Cookie"} <= removed


def test_nginx_listens_where_compose_points() -> None:
    """Published port, health check and upstream agree with the configuration of nginx and server."""
    (port,) = _directives("listen")
    assert SERVICES["nginx"]["ports"][0].endswith(f":{port}")
    assert f"http://127.0.0.1:{port}/nginx-health" in SERVICES["nginx"]["healthcheck"]["test"]
    bind_port = SERVICES["server"]["environment"]["DITHER_BIND"].rpartition(":")[2]
    assert f"server:{bind_port} resolve" in _directives("server")
    assert NGINX.count("{") == NGINX.count("}")


def test_nginx_problems_are_json() -> None:
    """What nginx refuses by itself has the form of the API's own errors."""
    bodies = [json.loads(text) for text in re.findall(r"return \d+ '(.*)';", NGINX)]
    assert {body["status"]: body["retryable"] for body in bodies} == {413: False, 503: True}


def test_key_script_of_the_readme(tmp_path: Path) -> None:
    """The script in deploy/README.md prints two keys and writes exactly their hashes."""
    found = re.search(r"<<'END'\n(.*?)\n +END\n", (ROOT / "deploy/README.md").read_text(), re.DOTALL)
    assert found
    (tmp_path / "deploy").mkdir()
    command = [sys.executable, "-c", textwrap.dedent(found[1])]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    keys = dict(line.split(": ") for line in printed.stdout.splitlines())
    written = json.loads((tmp_path / "deploy/keys.json").read_text())
    assert set(keys) == {"ingest", "operator"}
    assert written == {
        "keys": [
            {"name": role, "role": role, "sha256": hashlib.sha256(key.encode()).hexdigest()}
            for role, key in keys.items()
        ]
    }
