//! The page of each finding of a run, a gate and a comparison, as `checks` has them for manifests and nodes.

use checks::node::Page;
use checks::pages;

/// Every page. What UCX and NIXL log has its text beside the line that is recognised.
pub(crate) const RUN_PAGES: &[Page] = pages! {
    "transport-below-expected", "Less than the expected wire carried the bytes",
        "UCX takes what is left when a device, a port, a provider library or an entry of UCX_TLS is missing, and says nothing.",
        "Run again with --verbose: the rows of UCX's protocol tables and the counters of both sides are printed.",
        "Mend the cause that the finding names, or state on purpose what is enough with --expect.", User;
    "transport-unknown", "It is not known which wire carried the bytes",
        "Evidence is missing (UCX_PROTO_INFO or UCX_LOG_FILE was taken for something else, counters cannot be read) or disagrees.",
        "Run again with --verbose and read the evidence of the case.",
        "Leave UCX_PROTO_INFO and UCX_LOG_FILE to kvwire, and let it read /sys.", User;
    "transport-evidence", "One source of evidence does not agree, or could not be read",
        "Other traffic on the same port, a counter that is missing or wraps, or a log that was cut.",
        "Run again on a quiet machine with --verbose.", "Nothing, when the class is the right one.", Nobody;
    "rails-unused", "Fewer rails carried data than there are",
        "UCX takes UCX_MAX_RMA_RAILS devices (NIXL sets 2), and leaves out what is slower, farther from the memory, or down.",
        "Look at the shares of the devices with --verbose, and at `ibstat`.",
        "Name the devices in UCX_NET_DEVICES, raise UCX_MAX_RMA_RAILS, or bring the port up.", User;
    "rdma-unusable", "RDMA ports are there and none can be used",
        "The device files are not in the container, the port is down, or its provider library is missing.",
        "kvwire check node  # on that side", "Mend what the check of that node names first.", Admin;
    "strict-not-possible", "This UCX cannot do without software emulation",
        "UCX_PROTO_EMULATION_ENABLE is known from UCX 1.21 on; older ones ignore it.",
        "kvwire info", "Use a NIXL with UCX 1.21 or newer (1.1.0 and later), or read the class that was measured.", User;
    "ucx-two-copies", "Two UCX libraries are in one process",
        "LD_LIBRARY_PATH, HPC-X or a system package brings a second UCX beside the one in NIXL's wheel.",
        "grep -E 'libuc[pst]' /proc/PID/maps", "Take the other UCX out of LD_LIBRARY_PATH.", User;
    "cpu-contended", "The engine had to share its processor",
        "A timed loop never sleeps; it lost its processor to something else, or to a CPU limit of the container.",
        "top, and cpu.stat of the cgroup (nr_throttled)", "End what else runs, or give each engine a core of its own.", User;
    "data-mismatch", "Bytes arrived wrong, or not at all",
        "A transport, a driver, a NIC or a registration delivers other bytes than were sent; the finding says which kind they look like.",
        "Run the same case again, with --ucx-env UCX_TLS=tcp to compare.", "Do not serve over this wire; send the result to who maintains it.", Admin;
    "nixl-telemetry-differs", "NIXL's own timing and kvwire's disagree",
        "NIXL counts whole microseconds, and from another moment on.",
        "Compare `nixl_telemetry` of the case in the result.", "Trust kvwire's clock for what an engine waits for.", Nobody;
    "rate-not-sustained", "The pair cannot keep up with --rate",
        "More transfers are scheduled than the wire, or the free slots, can take.",
        "Compare with the bandwidth of a closed loop (without --rate).", "Lower --rate, or raise --requests-in-flight.", User;
    "repetitions-missing", "Not every repetition was measured",
        "--total-time was over before.", "Count `repetitions` of the cases in the result.", "Raise --total-time or lower --repeat.", User;
    "versions-differ", "The two sides use different NIXL or UCX versions",
        "Two images, or two virtual environments.", "kvwire info  # on both", "Deploy one version on both sides, or test each combination that you deploy.", User;
    "kvwire-differs", "The two sides run different kvwire versions",
        "Two binaries of one major version.", "kvwire --version  # on both", "Use one binary.", User;
    "version-refused", "The two sides do not understand each other",
        "Two kvwire versions that speak different protocols.", "kvwire --version  # on both", "Use one binary.", User;
    "same-host", "Both sides run on one host",
        "The scheduler put both pods on one node, or both commands were typed on one machine: nothing is learnt about the network.",
        "kubectl get pods -o wide", "Put them on two nodes, or say --allow-same-host when that is meant.", User;
    "fabric-differs", "The two sides have different fabrics",
        "One node has RDMA ports and the other none, or their ports are of different kinds.",
        "kvwire check node  # on both", "Schedule both sides on one kind of node.", Admin;
    "join-failed", "The other side or the rendezvous could not be reached",
        "A wrong address, a firewall, a name that does not resolve, or etcd that is down or refuses the credentials.",
        "nc -zv HOST PORT", "Correct --rendezvous; docs/two-hosts.md says which ports to open.", User;
    "role-taken", "Somebody else already has this role in the run",
        "Two targets or two initiators were started with one run id.", "The finding names who holds it.", "Start one of each, or give each pair its own --run-id.", User;
    "peer-missing", "The other side did not come",
        "It was not started, failed before it could join, or waits at another address or run id.",
        "Look at the other side's output.", "Start it, or raise --join-timeout.", User;
    "peer-lost", "The other side went away",
        "Its process or its host died, or the network between them broke.",
        "Look at the other side's output and at its host.", "Run again; where it repeats, look for the out-of-memory killer and the link.", User;
    "peer-silent", "The other side is there and does not answer",
        "It was stopped, hangs, or its machine is far too busy.", "Look at the other side's output.", "End it and run again, or raise --peer-timeout.", User;
    "peer-ended", "The other side ended the run",
        "It could not go on and says why.", "Read its finding.", "Mend what it names.", User;
    "control-plane-lost", "The rendezvous was lost",
        "etcd, or the network to it, was away for longer than the lease. Nothing is said about the wire.",
        "etcdctl endpoint health", "Mend the control plane and run again.", Admin;
    "output-failed", "The result could not be written",
        "A full or read-only file system.", "df -h", "Make room, or choose another --output.", User;
    "engine-not-started", "The engine process could not be started",
        "No processes or memory left, or the binary was replaced while it ran.", "ulimit -u; free -m", "Make room and run again.", User;
    "engine-died", "The engine process died",
        "UCX aborts its process when a connection breaks in a way that it does not handle; or something killed it.",
        "Read the quoted lines; dmesg shows the out-of-memory killer.", "Mend what the lines name.", User;
    "engine-stopped", "The engine process was stopped",
        "A debugger or SIGSTOP.", "ps -o stat= -p PID", "Let it run, and start the run again.", User;
    "engine-silent", "The engine did not answer in time",
        "A call into NIXL or UCX hangs.", "Read the quoted lines; gdb -p PID shows where.", "Report it to who maintains that library, with the result file.", User;
    "engine-confused", "The engine said something that makes no sense",
        "Two different kvwire binaries, or a fault in kvwire.", "kvwire --version", "Use one binary; else report it.", User;
    "nixl-missing", "NIXL was not found",
        "No libnixl_capi.so in any of the places.", "kvwire info", "Install the wheel (pip install nixl), or name the library with --nixl-lib.", User;
    "nixl-unusable", "NIXL is there and cannot be used",
        "A library that is none, lacks symbols, or has no UCX plugin.", "kvwire info", "Name another one with --nixl-lib.", User;
    "nixl-error", "A call of NIXL failed",
        "The quoted lines of UCX and NIXL say more than the status, which collapses many causes into one.",
        "Run again with --verbose --ucx-env UCX_LOG_LEVEL=info.", "Mend what the lines name.", User;
    "transfer-stalled", "A transfer was posted and did not complete",
        "The link or the other side stopped moving bytes; UCX notices that only after tens of seconds.",
        "Look at the counters of both ports while it hangs.", "Look at link, switch and peer; raise --transfer-timeout only for slow wires.", Admin;
    "gpu-missing", "GPU memory was asked for and there is no GPU that can be used",
        "No driver library in the container, no device file, or a number, UUID or PCI address that no GPU has.",
        "nvidia-smi -L; kvwire info", "Request nvidia.com/gpu in the pod, correct --gpu, or measure host memory with --memory dram.", User;
    "gpu-unusable", "A call of the NVIDIA driver failed",
        "Out of memory, a lost device, a driver that is too old, or no permission: the finding has the driver's own word.",
        "nvidia-smi; dmesg | grep -i xid", "Mend what the driver's word names; free the GPU's memory, or update the driver.", Admin;
    "memory-fallback", "Host memory was measured in place of GPU memory",
        "--memory auto takes host memory where no GPU can be used.",
        "kvwire info", "Ask for --memory vram, so that a missing GPU fails the run.", User;
    "memory-differs", "The two sides use different kinds of memory",
        "--initiator-memory and --target-memory differ: what is measured includes a path between GPU and host.",
        "The finding has both kinds.", "Nothing, when it is meant; else use --memory for both.", Nobody;
    "numa-not-pinned", "An engine does not run on the NUMA node that it should",
        "The container has no core of the node, or the node does not exist.",
        "grep Cpus_allowed_list /proc/self/status; cat /sys/devices/system/node/node*/cpulist",
        "Give the container cores of that node (static CPU manager and topology manager), or take another one with --numa.", Admin;
    "numa-memory-elsewhere", "Host memory lies on another NUMA node than the engine that uses it",
        "The node had too little free memory, or the container may not use its memory.",
        "numactl --hardware; grep Mems_allowed_list /proc/self/status", "Free memory on that node, or allow it in cpuset.mems.", Admin;
    "gpu-kernels-unused", "GPU memory is filled and checked through host memory",
        "The driver refused the kernels, or they disagreed with the processor.",
        "The finding has the driver's word.", "Update the NVIDIA driver; the figures of the transfers are right all the same.", Admin;
    "gpu-copies-slow", "Copies between host and GPU are far below the GPU's PCIe link",
        "The engine runs on another NUMA node than the GPU, the link trained low under the load of others, or something else copies.",
        "nvidia-smi topo -m; nvidia-smi -q -d PERFORMANCE; lspci -vv | grep LnkSta", "Pin the engine to the GPU's node (--numa), and have the link and the slot looked at.", Admin;
    "gpu-memory-not-exportable", "GPU memory that NVLink cannot reach",
        "What the memory was taken with (--alloc) has no handle that another process could import.",
        "The finding lists the exports that were tried.", "Try another --alloc: malloc, vmm or fabric; fabric needs an IMEX channel in the container.", User;
    "cuda-ipc-impossible", "NVLink and PCIe between the two GPUs cannot be used",
        "The two processes are in different PID namespaces, or on two hosts of an NVLink domain, and lack fabric handles or an IMEX channel; a GPU is divided by MIG; or the memory of a side cannot be exported. Of several ranks the finding names those that it is so for.",
        "readlink /proc/self/ns/pid  # in both; ls /dev/nvidia-caps-imex-channels", "Share the PID namespace, or give both an IMEX channel and use --alloc fabric.", User;
    "efficiency-low", "A path carried far less than it could",
        "Small blocks, few of them at once, fewer rails or lanes than there are, a PCIe link that trained low, memory on another NUMA node, or load.",
        "Compare the best case with the limit that the finding names.", "Measure larger blocks with more --batch and --depth; then look at `kvwire check node`.", User;
    "gate-regression", "Something got worse",
        "A change of code, version, setting or machine between baseline and candidate.",
        "Compare the two result files with `kvwire report`.", "Find the change, or make a new baseline when it is meant.", User;
    "gate-difference", "Two results differ in what they measured",
        "Another plan, version, setting or machine.", "The finding lists both values.", "Measure alike, or allow the difference with --allow-different.", User;
    "gate-not-comparable", "Two results cannot be compared",
        "Their workloads or machines differ.", "The finding lists both values.", "Measure alike, or allow the difference with --allow-different.", User;
    "gate-case-missing", "A case of the baseline was not measured",
        "Another plan, or a case that failed.", "Compare the cases of both files.", "Measure the cases of the baseline, or make a new one.", User;
    "gate-too-few", "Too few repetitions to show a change",
        "One timed loop says nothing about its own spread.", "Count `repetitions` in both files.", "Measure both sides with --repeat 10.", User;
    "gate-cpu-contended", "A slow result that a busy machine explains",
        "The candidate's engine lacked a processor far more than the baseline's.", "Compare `off_cpu_ns` of the repetitions.", "Measure again with nothing else running.", User;
    "nothing-compared", "The gate compared nothing",
        "No case of the candidate is in the baseline or the thresholds.", "Compare the names of the cases.", "Give a baseline of the same plan.", User;
};
