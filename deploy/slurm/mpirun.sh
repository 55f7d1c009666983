#!/usr/bin/env bash
# Two hosts under Open MPI: rank 0, on the first host, is the target, rank 1 the initiator.
#
#   deploy/slurm/mpirun.sh decode-0 prefill-0 --expect rdma --output result.json
#
# Arguments after the hosts go to `kvwire run`, KVWIRE_PORT chooses another port. Ends with the run's exit code.
set -euo pipefail

[ $# -ge 2 ] || {
    echo "usage: $0 TARGET_HOST INITIATOR_HOST [flags of kvwire run]" >&2
    exit 2
}
target=$1 initiator=$2
shift 2
# -x hands the variable to both ranks by name; the token stands on no command line.
KVWIRE_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export KVWIRE_TOKEN

exec mpirun --host "$target,$initiator" -np 2 --map-by node -x KVWIRE_TOKEN \
    "${KVWIRE:-kvwire}" run --rendezvous "tcp://$target:${KVWIRE_PORT:-18516}" "$@"
