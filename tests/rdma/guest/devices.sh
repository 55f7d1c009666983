# In the guest: RDMA devices, their state and their counters. Processes are slow to start on an emulated processor, so these
# functions start as few as they can.

# rail N CARD: the RDMA device rxeN on a network card.
rail() {
    ip link set "$2" mtu 4200 # the RDMA MTU is then 4096
    ip addr add 10.77.$(($1 + 1)).$number/24 dev "$2"
    ip link set "$2" up
    rdma link add "rxe$1" type rxe netdev "$2"
}

uptime_s() {
    local seconds rest
    read -r seconds rest </proc/uptime
    echo "$seconds"
}

# await SECONDS COMMAND...: waits until the command succeeds.
await() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        nap
    done
}

# A tenth of a second, without a process. Nothing ever comes out of this pipe.
mkfifo /run/nothing
exec 8<>/run/nothing
nap() { read -r -t 0.1 -u 8 || true; }

in_state() {
    local state
    read -r state <"/sys/class/infiniband/$1/ports/1/state" && [ "${state#*: }" = "$2" ]
}
active() { in_state "$1" ACTIVE; }
down() { in_state "$1" DOWN; }

# Every counter of every RDMA port and network card of this node: a name and a number a line.
counters() {
    local file value
    for file in /sys/class/infiniband/*/ports/*/hw_counters/* /sys/class/net/*/statistics/[rt]x_bytes; do
        case $file in */lifespan) continue ;; esac # a cache time, not a counter
        read -r value <"$file"
        echo "$node/${file#/sys/class/} $value"
    done
}

sent() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"; }
received() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/rcvd_pkts"; }
has_received() { [ "$(received "$1")" -ge "$2" ]; }

# Puts the node back as it was. Every kvwire here is a leftover of the scenario before.
heal() {
    killall -q -9 kvwire
    ip link set eth1 up
    ip link set eth2 up
    await 5 active rxe0 && await 5 active rxe1
}
