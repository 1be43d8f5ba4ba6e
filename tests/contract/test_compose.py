import hashlib
import json
import re
import shlex
import subprocess
import sys
import textwrap
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from dither_protocol.store_url import parse_store_url
from dither_protocol.wire import MAX_BODY_BYTES
from dither_server.auth import parse_keys

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
SCALE = sorted(name for name, service in SERVICES.items() if service.get("profiles") == ["scale"])
STORES = sorted(name for name in SERVICES if "valkey" in name)
PROXIES = sorted(name for name in SERVICES if "nginx" in name)
FOR_DEVICES = sorted(name for name in SERVICES if "server" in name)
FOR_PEOPLE = sorted(name for name in SERVICES if "operator" in name and name not in PROXIES)
SERVERS = FOR_DEVICES + FOR_PEOPLE
ESTIMATORS = sorted(name for name in SERVICES if "estimator" in name)
JOB = "scale-join"  # ends when its work is done
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
CONFIGS = {
    name: re.sub(r"#.*", "", (ROOT / "deploy" / name).read_text(encoding="utf-8"))
    for name in ("nginx.conf", "operator.conf")
}
PINNED = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+(-[a-z0-9.-]+)?")


def _instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} +(.*)$", DOCKERFILE, re.MULTILINE)


def _directives(config: str, name: str) -> list[str]:
    found = re.findall(rf"(?<!\S){name}\s+([^;{{]*);", CONFIGS[config])
    return [re.sub(r"\s+", " ", value) for value in found]


def _config_of(proxy: str) -> str:
    """The configuration in ``deploy/`` that a proxy mounts."""
    (mounted,) = SERVICES[proxy]["configs"]
    return Path(COMPOSE["configs"][mounted["source"]]["file"]).name


def test_the_services_of_the_two_shapes() -> None:
    """By default a store, an estimator, a server for devices and one for people, each behind a proxy of its own.

    In the profile a cluster, and two of what works on it.
    """
    people = {"operator", "operator-nginx"}
    assert set(SERVICES) - set(SCALE) == {"valkey", "server", "estimator", "nginx"} | people
    numbered = [f"scale-{name}" for name in ("estimator-1", "estimator-2", "server-1", "server-2")]
    nodes = [f"scale-valkey-{number}" for number in (1, 2, 3)]
    assert sorted([*numbered, *nodes, "scale-nginx", *(f"scale-{name}" for name in people), JOB]) == SCALE
    assert not any("profiles" in service for name, service in SERVICES.items() if name not in SCALE)


@pytest.mark.parametrize("name", STORES)
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
def test_store_is_durable(name: str, flag: str, value: str) -> None:
    """Every store has what is acknowledged on disk, and never evicts."""
    command = SERVICES[name]["command"]
    assert command[0] == "valkey-server"
    assert all(isinstance(word, str) for word in command), "YAML must not read yes as true"
    assert command[command.index(flag) + 1] == value


def test_store_keeps_its_data_in_a_volume() -> None:
    """Data outlives the container, each store's its own."""
    volumes = [volume for name in STORES for volume in SERVICES[name]["volumes"]]
    assert sorted(volumes) == sorted(f"{volume}:/data" for volume in COMPOSE["volumes"])
    assert len(volumes) == len(STORES)


def test_the_cluster_is_joined_from_its_nodes() -> None:
    """Three nodes with addresses of their own, which the job joins, and at which servers and estimators begin."""
    nodes = [name for name in STORES if name in SCALE]
    assert all("--cluster-enabled" in SERVICES[name]["command"] for name in nodes)
    addresses = [SERVICES[name]["networks"]["scale"]["ipv4_address"] for name in nodes]
    assert len(set(addresses)) == 3
    (subnet,) = COMPOSE["networks"]["scale"]["ipam"]["config"]
    assert all(ip_address(address) in ip_network(subnet["subnet"]) for address in addresses)
    places = [f"{address}:6379" for address in addresses]
    assert SERVICES[JOB]["environment"]["NODES"].split() == places
    assert set(SERVICES[JOB]["depends_on"]) == set(nodes)
    script = SERVICES[JOB]["command"][1]
    assert [each["target"] for each in SERVICES[JOB]["configs"]] == [script]
    url = parse_store_url(SERVICES["scale-server-1"]["environment"]["DITHER_STORE_URL"])
    assert url.urls == tuple(f"redis://{place}" for place in places)
    assert SERVICES["scale-server-1"]["environment"]["DITHER_PARTITIONS"] == "48"


def test_only_nginx_publishes_a_port() -> None:
    """Proxies alone are reachable from outside, and only from this machine; the others cannot reach out."""
    assert sorted(name for name, service in SERVICES.items() if "ports" in service) == PROXIES
    ports = [port for name in PROXIES for port in SERVICES[name]["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len(set(ports)) == len(PROXIES), "both shapes can run at once"
    assert not any(service.get("network_mode") for service in SERVICES.values())
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert COMPOSE["networks"]["scale"]["internal"] is True
    for name in set(SERVICES) - set(PROXIES):
        assert list(SERVICES[name]["networks"]) == ["scale" if name in SCALE else "inside"]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {JOB}))
def test_every_service_has_a_health_check(name: str) -> None:
    """Each service says whether it works, by a command without a shell, with limits, and is restarted."""
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= set(check)
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVERS + ESTIMATORS)
def test_python_of_health_checks_compiles(name: str) -> None:
    """The one-line programs of the health checks are Python."""
    check = SERVICES[name]["healthcheck"]["test"]
    assert check[1:3] == ["python", "-c"]
    compile(check[3], name, "exec")


def test_health_check_of_image_and_compose_are_one() -> None:
    """The server is asked the same question with and without Compose."""
    (found,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert all(json.loads(found) == SERVICES[name]["healthcheck"]["test"][1:] for name in SERVERS)
    assert "/readyz" in found


def test_services_wait_for_what_they_need() -> None:
    """Nothing starts before what it depends on is healthy."""
    assert SERVICES[JOB]["restart"] == "no"
    needs = {
        name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    assert needs == {
        "valkey": {},
        "server": {"valkey": "service_healthy"},
        "estimator": {"valkey": "service_healthy"},
        "operator": {"valkey": "service_healthy"},
        "nginx": {"server": "service_healthy"},
        "operator-nginx": {"operator": "service_healthy"},
        **{name: {} for name in STORES},
        JOB: {name: "service_healthy" for name in STORES if name in SCALE},
        **{name: {JOB: "service_completed_successfully"} for name in SCALE if name in SERVERS + ESTIMATORS},
        "scale-nginx": {name: "service_healthy" for name in FOR_DEVICES if name in SCALE},
        "scale-operator-nginx": {"scale-operator": "service_healthy"},
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


@pytest.mark.parametrize("shape", [set(SERVICES) - set(SCALE), set(SCALE)], ids=["single", "scale"])
def test_servers_and_estimators_share_one_store(shape: set[str]) -> None:
    """All have one image and one store; servers have their registry and keys, estimators names of their own."""
    servers = [SERVICES[name] for name in SERVERS if name in shape]
    estimators = [SERVICES[name] for name in ESTIMATORS if name in shape]
    both = servers + estimators
    assert len({service["image"] for service in both}) == 1
    assert len({service["environment"]["DITHER_STORE_URL"] for service in both}) == 1
    for server in servers:
        assert server["environment"]["DITHER_REGISTRY"] in [each["target"] for each in server["configs"]]
        assert _shared(server["environment"]) == _shared(servers[0]["environment"])
    assert all(each["command"] == ["python", "-m", "dither_estimator.worker"] for each in estimators)
    names = {each["environment"]["DITHER_WORKER_NAME"] for each in estimators}
    assert len(names) == len(estimators)


def _shared(environment: dict[str, str]) -> dict[str, str]:
    of_a_role = ("DITHER_ROLE", "FORWARDED_ALLOW_IPS")
    return {name: value for name, value in environment.items() if name not in of_a_role}


def test_only_the_side_for_devices_faces_the_internet() -> None:
    """What nginx.conf passes on to has no estimates; what operator.conf passes on to takes no reports."""
    assert {SERVICES[name]["environment"]["DITHER_ROLE"] for name in FOR_DEVICES} == {"ingest"}
    assert {SERVICES[name]["environment"]["DITHER_ROLE"] for name in FOR_PEOPLE} == {"operator"}
    assert len(FOR_PEOPLE) == 2
    assert {name: _config_of(name) for name in PROXIES} == {
        "nginx": "nginx.conf",
        "operator-nginx": "operator.conf",
        "scale-nginx": "nginx.conf",
        "scale-operator-nginx": "operator.conf",
    }


@pytest.mark.parametrize("name", SERVERS)
def test_keys_can_change_without_a_restart(name: str) -> None:
    """The folder of the keys file is mounted, and cannot be written: a file alone would stay the old one."""
    (mounted,) = SERVICES[name]["volumes"]
    assert SERVICES[name]["environment"]["DITHER_KEYS_FILE"] == f"{mounted['target']}/keys.json"
    assert (mounted["type"], mounted["read_only"]) == ("bind", True)
    assert mounted["bind"] == {"create_host_path": False}, "a missing folder is an error, not an empty one"
    folder = mounted["source"].removeprefix(".")
    assert f"{folder}/" in (ROOT / ".gitignore").read_text().splitlines()


def test_mounted_files_exist() -> None:
    """Files that are mounted are in the repository."""
    for config in COMPOSE["configs"].values():
        assert (ROOT / config["file"]).is_file()


@pytest.mark.parametrize("name", SERVERS + ESTIMATORS)
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


@pytest.mark.parametrize("config", CONFIGS)
def test_nginx_buffers_requests_within_the_limits_of_the_wire(config: str) -> None:
    """A slow client costs no thread; the largest body passes, stays in memory, and a larger one is refused."""
    assert _directives(config, "proxy_request_buffering") == ["on"]
    assert (
        _directives(config, "client_max_body_size")
        == _directives(config, "client_body_buffer_size")
        == ["1m"]
    )
    assert MAX_BODY_BYTES == 1 << 20


@pytest.mark.parametrize("config", CONFIGS)
def test_nginx_knows_no_addresses(config: str) -> None:
    """No address is logged or passed on, not even one that another proxy noted; cookies go to people's side alone."""
    assert _directives(config, "access_log") == ["off"]
    assert _directives(config, "error_log") == ["/dev/stderr emerg"]
    noted = re.sub(r"\$http_x_forwarded_proto\b", "", CONFIGS[config])
    assert not re.search(r"\$(binary_)?remote_|\$proxy_add_x_forwarded_for|\$http_x_|realip", noted)
    removed = {value.split()[0] for value in _directives(config, "proxy_set_header") if value.endswith('""')}
    assert {"X-Forwarded-For", "X-Real-IP", "Forwarded"} <= removed
    assert ("Cookie" in removed) is (config == "nginx.conf")


@pytest.mark.parametrize("proxy", PROXIES)
def test_nginx_listens_where_compose_points(proxy: str) -> None:
    """Published port, health check and upstream agree with the configuration of nginx and of what it waits for."""
    config = _config_of(proxy)
    (port,) = _directives(config, "listen")
    assert SERVICES[proxy]["ports"][0].endswith(f":{port}")
    assert f"http://127.0.0.1:{port}/nginx-health" in SERVICES[proxy]["healthcheck"]["test"]
    (upstream,) = [value for value in _directives(config, "server") if value.endswith("resolve")]
    host, _, bind_port = upstream.removesuffix(" resolve").partition(":")
    for behind in SERVICES[proxy]["depends_on"]:
        assert SERVICES[behind]["environment"]["DITHER_BIND"].rpartition(":")[2] == bind_port
        networks = SERVICES[behind]["networks"]
        (names,) = [networks[name]["aliases"] for name in networks] if behind in SCALE else ([behind],)
        assert names == [host], "the name that nginx resolves stands for all of them"
    assert CONFIGS[config].count("{") == CONFIGS[config].count("}")


def test_nginx_keeps_the_paths_for_machines_inside() -> None:
    """Health is not answered to the outside, monitoring to no device."""
    hidden = {
        config: sorted(re.findall(r"location = (\S+) \{ return 404; \}", text))
        for config, text in CONFIGS.items()
    }
    assert hidden == {
        "nginx.conf": ["/healthz", "/metrics", "/readyz"],
        "operator.conf": ["/healthz", "/readyz"],
    }


@pytest.mark.parametrize("config", CONFIGS)
def test_nginx_problems_are_json(config: str) -> None:
    """What nginx refuses by itself has the form of the API's own errors."""
    bodies = [json.loads(text) for text in re.findall(r"return \d+ '(.*)';", CONFIGS[config])]
    assert {body["status"]: body["retryable"] for body in bodies} == {413: False, 503: True}


def test_key_script_of_the_readme(tmp_path: Path) -> None:
    """The script in deploy/README.md prints two keys and writes exactly their hashes."""
    found = re.search(r"<<'END'\n(.*?)\n +END\n", (ROOT / "deploy/README.md").read_text(), re.DOTALL)
    assert found
    (tmp_path / "deploy").mkdir()
    file = tmp_path / "deploy" / "keys" / "keys.json"
    command = [sys.executable, "-c", textwrap.dedent(found[1])]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    keys = dict(line.split(": ") for line in printed.stdout.splitlines())
    written = json.loads(file.read_text())
    assert set(keys) == {"ingest", "admin"}
    assert written == {
        "keys": [
            {"name": role, "role": role, "sha256": hashlib.sha256(key.encode()).hexdigest()}
            for role, key in keys.items()
        ]
    }
    assert len(parse_keys(file.read_bytes())) == 2
    again = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)
    assert (again.returncode, again.stdout) == (1, ""), "keys in use are not lost by a second run"
    assert json.loads(file.read_text()) == written
