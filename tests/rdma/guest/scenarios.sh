# On node a: what happens to kvwire. Nothing is judged here: each scenario leaves its evidence in /out/<name>, and
# tests/tests/rdma.rs says what must be in it.
NIXL=/opt/nixl/$(cd /opt/nixl && echo .nixl_cu1*.mesonpy.libs)/libnixl_capi.so
# Where the wheel's libibverbs finds its provider for rxe.
PROVIDER="RDMAV_DRIVERS=/opt/provider/librxe"
MEET="--rendezvous tcp://10.77.0.2:18516 --run-id rdma --join-timeout 30s"
export KVWIRE_TOKEN=only-for-this-machine-0123456789abcdef

# A run that takes longer hangs, in s.
LIMIT=90
# Blocks small enough for an emulated machine, few enough for a test.
SMALL="--sizes 64KiB --op read,write --batch 8 --warmup 2 --samples 10 --case-time 5s --transfer-timeout 30s"
# A case that goes on until something happens to it.
LONG="--sizes 1MiB --op read --warmup 1 --samples 1000000 --case-time 50s --transfer-timeout 30s"

# On node b: waits up to ten seconds for the target to follow its initiator, and keeps what came of it.
COLLECT='await 10 eval "! killall -q -0 kvwire"; killall -q -9 kvwire; wait; cp -r "/tmp/$name" "/out/$name/target"; rm -r "/tmp/$name"; heal'

# between_hosts ENVIRONMENT FLAG...: a target on node b and an initiator here. ENVIRONMENT is for both.
between_hosts() {
    target "$1"
    initiator "$@"
}

# target ENVIRONMENT: starts a target on node b.
target() {
    on_b "mkdir -p /tmp/$name; { KVWIRE_TOKEN=$KVWIRE_TOKEN $1 timeout -s KILL $LIMIT /usr/bin/kvwire target $MEET \
        --nixl-lib $NIXL --verbose --output /tmp/$name/result.json >/tmp/$name/stdout 2>/tmp/$name/stderr; echo \$? >/tmp/$name/code; } &"
}

# initiator ENVIRONMENT FLAG...: runs an initiator here and keeps what came of it.
initiator() {
    local begin code=0 environment=$1
    shift
    begin=$(uptime_s)
    # shellcheck disable=SC2086 # an environment is words
    env $environment timeout -s KILL "$LIMIT" kvwire initiator $MEET --nixl-lib "$NIXL" --verbose \
        --output "$folder/result.json" "$@" >"$folder/stdout" 2>"$folder/stderr" || code=$?
    echo "$code" >"$folder/code"
    echo "$begin $(uptime_s)" >"$folder/uptime"
}

# until_moving PACKETS: waits until the timed loop has received so many packets on rxe0.
until_moving() {
    await 40 grep -q "engine: timed loop" "$folder/stderr" 2>/dev/null && await 20 has_received rxe0 $(($(received rxe0) + $1))
}

# Nothing that a scenario does lasts once both ends of a cable are up again. A cable that carries nothing then, not even a
# ping, is the emulator's fault, and what the scenario saw is void: other machines play it again.
void_where_a_cable_is_dead() {
    local net
    for net in 0 1 2; do
        await 10 ping -q -c 1 -W 1 "10.77.$net.2" >/dev/null || {
            rm -r "/out/${name:?}"
            echo "cable$net carries nothing after $name" >/out/dead-cable
            sleep 60 # the power is cut meanwhile
        }
    done
}

scenario() {
    name=$1
    [ ! -e "/out/$name/done" ] || return 0
    folder=/tmp/$name
    mkdir -p "$folder"
    { counters && on_b counters; } >"$folder/counters.before"
    "$name"
    { counters && { [ "$b_is_off" ] || on_b counters; }; } >"$folder/counters.after"
    cp -r "$folder" /out/
    [ "$b_is_off" ] || on_b "name=$name; $COLLECT"
    heal
    [ "$b_is_off" ] || void_where_a_cable_is_dead
    touch "/out/$name/done"
    rm -r "$folder"
    echo "guest: $name: code $(cat "/out/$name/code"), uptime $(cat "/out/$name/uptime")"
}

rdma_carries_the_bytes() {
    between_hosts "$PROVIDER" $SMALL --ucx-env UCX_NET_DEVICES=rxe0:1
}

tcp_is_caught() {
    between_hosts "$PROVIDER" $SMALL --ucx-env UCX_TLS=tcp
}

a_missing_provider_is_caught() {
    between_hosts "" $SMALL
}

# The initiator may use memory of node 1 alone, and the only processor is on node 0.
a_port_and_a_node_of_ones_own() {
    local far=/sys/fs/cgroup/far
    mount -t cgroup2 none /sys/fs/cgroup
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
    mkdir "$far"
    echo 1 >"$far/cpuset.mems"
    target "$PROVIDER"
    (
        echo "$BASHPID" >"$far/cgroup.procs"
        initiator "$PROVIDER" $SMALL --nics rxe0:1 --numa 0
    )
}

# No core is on node 1.
a_node_without_cores() {
    between_hosts "$PROVIDER" $SMALL --nics rxe1:1 --numa 1
}

two_rails() {
    between_hosts "$PROVIDER" $SMALL --ucx-env UCX_NET_DEVICES=rxe0:1,rxe1:1
}

a_missing_rail() {
    between_hosts "$PROVIDER" $SMALL --ucx-env UCX_NET_DEVICES=rxe0:1,rxe9:1
}

an_expectation_that_one_host_cannot_meet() {
    on_b "ip link set eth1 down; ip link set eth2 down; await 5 down rxe0; await 5 down rxe1"
    between_hosts "$PROVIDER" $SMALL --expect rdma
}

# node_report NAME COMMAND...: what `kvwire check node` says here, as COMMAND runs it.
node_report() {
    local name=$1 code=0
    shift
    "$@" >"$folder/$name.json" 2>>"$folder/stderr" || code=$?
    echo "$code" >"$folder/$name.code"
}

the_node_check_sees_what_the_kernel_has() {
    local begin
    begin=$(uptime_s)
    node_report up kvwire check node --json
    # A pod whose image has busybox and no kvwire: what kubectl would run there is run here.
    mkdir -p /tmp/pod /tmp/applets
    busybox --install -s /tmp/applets
    printf '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\nPATH=/tmp/applets exec "$@"\n' >/tmp/pod/kubectl
    chmod +x /tmp/pod/kubectl
    node_report shell env PATH=/tmp/pod:/usr/bin kvwire check node --json --pod here
    ip link set eth2 down
    await 5 down rxe1
    node_report down kvwire check node --json
    # A container that was not given the devices.
    node_report closed unshare -m sh -c 'mount -t tmpfs none /dev/infiniband && exec kvwire check node --json'
    echo 0 >"$folder/code"
    echo "$begin $(uptime_s)" >"$folder/uptime"
}

a_device_that_does_not_exist() {
    between_hosts "$PROVIDER" $SMALL --ucx-env UCX_NET_DEVICES=rxe9:1
}

a_port_that_is_down_before_the_run() {
    ip link set eth1 down
    await 5 down rxe0
    between_hosts "$PROVIDER" $SMALL --ucx-env UCX_NET_DEVICES=rxe0:1
}

a_link_that_goes_down_in_mid_transfer() {
    target "$PROVIDER"
    initiator "$PROVIDER" $LONG --ucx-env UCX_NET_DEVICES=rxe0:1 &
    until_moving 300 && ip link set eth1 down && uptime_s >"$folder/struck"
    wait
}

a_peer_that_is_killed_in_mid_transfer() {
    target "$PROVIDER"
    initiator "$PROVIDER" $LONG --ucx-env UCX_NET_DEVICES=rxe0:1 &
    until_moving 300 && on_b "killall -9 kvwire" && uptime_s >"$folder/struck"
    wait
}

# GPU memory of the tests' driver, which UCX takes for NVIDIA's. The kernels would be interpreted on an emulated processor:
# the data goes through host memory instead.
GPU="LD_LIBRARY_PATH=/opt/driver KVWIRE_FAKE_GPUS=/opt/driver/gpus"
with_gpus() {
    local make='mkdir -p /opt/driver/gpus && printf "gpu pci=0000:17:00.0\nfault cuModuleLoadData=218\n" >/opt/driver/gpus/gpus'
    eval "$make"
    on_b "$make"
}

gpu_memory_without_gpudirect() {
    with_gpus
    between_hosts "$PROVIDER $GPU" $SMALL --memory vram --ucx-env UCX_NET_DEVICES=rxe0:1,eth1
}

gpu_memory_over_rdma() {
    # What the kernel shows when a module lets adapters reach GPU memory. The memory of these GPUs they can reach.
    local load='mount -t tmpfs mm /sys/kernel/mm && mkdir -p /sys/kernel/mm/memory_peers/nv_mem && echo 1 >/sys/kernel/mm/memory_peers/nv_mem/version'
    with_gpus
    eval "$load"
    on_b "$load"
    between_hosts "$PROVIDER $GPU" $SMALL --memory vram --ucx-env UCX_NET_DEVICES=rxe0:1,eth1
    umount /sys/kernel/mm
    on_b "await 10 umount /sys/kernel/mm"
}

b_is_off=
# The power is cut: no process says goodbye and no kernel closes a connection.
a_node_that_vanishes_in_mid_transfer() {
    target "$PROVIDER"
    initiator "$PROVIDER" $LONG --ucx-env UCX_NET_DEVICES=rxe0:1 &
    until_moving 300 && touch /out/cut-power-of-b && b_is_off=yes && uptime_s >"$folder/struck"
    wait
}

SCENARIOS="rdma_carries_the_bytes tcp_is_caught a_missing_provider_is_caught a_port_and_a_node_of_ones_own a_node_without_cores two_rails a_missing_rail
    an_expectation_that_one_host_cannot_meet gpu_memory_without_gpudirect gpu_memory_over_rdma the_node_check_sees_what_the_kernel_has a_device_that_does_not_exist a_port_that_is_down_before_the_run a_link_that_goes_down_in_mid_transfer
    a_peer_that_is_killed_in_mid_transfer a_node_that_vanishes_in_mid_transfer"
for name in $SCENARIOS; do
    scenario "$name"
done
