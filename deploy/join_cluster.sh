#!/bin/sh
# Makes a cluster of the nodes in $NODES ("host:port host:port ..."), unless they are one, and returns once each of
# them takes writes. $CLI is the client of the engine: valkey-cli, or redis-cli.
set -eu

cli=${CLI:-valkey-cli}

state() {
    "$cli" -h "${1%:*}" -p "${1##*:}" cluster info | tr -d '\r'
}

if state "${NODES%% *}" | grep -qx cluster_known_nodes:1; then
    # shellcheck disable=SC2086  # the nodes are several words
    "$cli" --cluster create $NODES --cluster-yes
fi

for node in $NODES; do
    until state "$node" | grep -qx cluster_slots_ok:16384 && state "$node" | grep -qx cluster_state:ok; do
        sleep 1
    done
done
