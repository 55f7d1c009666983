# node.sh a|b, in the guest. Node a plays the scenarios and is the initiator; node b is the target and does what a asks.
# Each has three network cards: eth0 for the rendezvous, eth1 and eth2 for the RDMA devices rxe0 and rxe1 (two rails).
node=$1
[ "$node" = a ] && number=1 || number=2
hostname "rdma-$node"
ulimit -l unlimited
. /guest/devices.sh

ip link set lo up
ip addr add 10.77.0.$number/24 dev eth0
ip link set eth0 up
rail 0 eth1
rail 1 eth2
await 10 active rxe0 && await 10 active rxe1
echo "guest: $node is ready after $(uptime_s) s"

if [ "$node" = a ]; then
    . /guest/remote.sh
    . /guest/scenarios.sh
    touch /out/over
else
    . /guest/serve.sh
fi
echo "guest: $node is over after $(uptime_s) s"
