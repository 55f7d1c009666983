//! The rules by name: what each looks for and why it matters. `kvwire explain ID` prints this.

use serde::Serialize;

/// One rule.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rule {
    /// Its name. It never changes.
    pub id: &'static str,
    /// What it looks for.
    pub title: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

/// The rule of a name.
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|r| r.id == id)
}

macro_rules! rules {
    ($($id:literal, $title:literal, $why:literal, $remedy:literal;)*) => {
        /// All rules, in the order of the reference page.
        pub const RULES: &[Rule] = &[$(Rule { id: $id, title: $title, why: $why, remedy: $remedy }),*];
    };
}

rules! {
    "tls-without-rdma", "UCX_TLS leaves no transport that reaches another node by RDMA or NVLink",
    "The list decides what UCX may use. Without rc, dc, srd or ib, and without multi-node NVLink, KV cache between nodes takes TCP or nothing.",
    "Add rc (and cuda_copy, cuda_ipc for GPU memory), or take UCX_TLS out.";
    "tls-without-cuda", "UCX_TLS takes GPU memory away from UCX",
    "Without cuda_copy UCX takes GPU memory for host memory. NIXL 1.5 and later refuses to start on a GPU node; older versions fail at registration or crash.",
    "Add cuda_copy (or cuda).";
    "list-grammar", "A list of transports or devices does not do what it seems to",
    "UCX trims nothing, is strict about case, and takes ^ only as the first character, for the whole list. The rest is silently another list than the one meant.",
    "Write lower-case names, commas without blanks, one ^ at the very start or none, and `all` alone.";
    "tcp-fallback-possible", "TCP is allowed beside RDMA or NVLink, so that falling back to it goes unnoticed",
    "When the fast wire is missing on a node, UCX warns at most and moves KV cache over TCP: everything works, many times slower.",
    "Leave tcp out of UCX_TLS, or set UCX_PROTO_EMULATION_ENABLE=n (UCX 1.21 and later) so that it fails instead.";
    "net-devices-without-rdma", "UCX_NET_DEVICES names no RDMA device",
    "Interfaces such as eth0 are reached by TCP only: the list excludes every RDMA device, whatever UCX_TLS says.",
    "Name RDMA devices (`rdma link` shows them, for example mlx5_0:1), or take the variable out.";
    "device-name-unknown", "A device name has no form that is known",
    "A device that does not exist is a warning in UCX, and the rest of the list is used: a rail is lost in silence.",
    "Compare with `ibv_devices` on the node.";
    "device-port", "A device is listed with a port that does not exist",
    "Ports of RDMA devices count from 1.",
    "Use :1, or leave the port out.";
    "one-rail", "One network device serves several GPUs",
    "All GPUs of the pod share one port, wherever they sit, so that most transfers cross the CPUs and the port is the limit.",
    "List the devices beside the GPUs, or take UCX_NET_DEVICES out: NIXL then takes the nearest ones.";
    "rndv-thresh-set", "UCX_RNDV_THRESH overrides what NIXL needs",
    "NIXL sets inf. Another value makes UCX ask for RMA invalidation, which rc_verbs, srd, cma and tcp do not have: these lanes go, and data is emulated in software.",
    "Take UCX_RNDV_THRESH out.";
    "no-effect", "A variable that does nothing here",
    "It looks like tuning and is none: what it was meant to reach is not reached.",
    "Take it out, or use the variable that does it.";
    "unknown-variable", "A variable that no program reads",
    "UCX and NIXL ignore names they do not know; UCX warns once, in a log that few read.",
    "Use the right name, or take it out.";
    "invalid-value", "A value that its reader refuses or ignores",
    "What a bad value does depends on the variable: it is ignored, the backend fails, or RDMA or GPU memory is dropped in silence.",
    "Use one of the accepted values.";
    "gpu-direct-off", "GPUDirect RDMA is switched off",
    "The network card then cannot reach GPU memory, and every transfer is staged or emulated.",
    "Take UCX_IB_GPU_DIRECT_RDMA out (try), or set yes to fail where it is missing.";
    "gpu-direct-required", "GPUDirect RDMA is required",
    "With yes, a node without nvidia_peermem and dma-buf loses its cards: good to fail early when TCP is not allowed, a silent fall to TCP when it is.",
    "Nothing, where UCX_TLS excludes tcp; `kvwire check node` shows peermem and dma-buf.";
    "gid-index", "A RoCE address is pinned by number",
    "The table of addresses differs between pods and nodes, so that a number is a different address, or none. UCX finds the right one by itself.",
    "Take UCX_IB_GID_INDEX out.";
    "proto-disabled", "UCX's protocol selection or its symmetry check is set to a value that breaks transfers",
    "NIXL relies on the protocol selection; unified mode relies on equal devices on both sides.",
    "Take the variable out.";
    "transport-not-in-build", "UCX_TLS names transports that published NIXL packages do not have",
    "NIXL wheels from 1.3 on have no gdr_copy, from 1.4 on no dc and gga. A list of only these leaves TCP or nothing.",
    "Use rc.";
    "tls-without-wireup", "UCX_TLS names a transport by its exact name, without the one that sets connections up",
    "An alias such as rc brings ud along, over which connections are made. The exact name rc_mlx5 or rc_verbs does not: peers stay unreachable.",
    "Write the alias: rc, rc_x or rc_v.";
    "devices-not-requested", "Devices are named of a kind that the pod does not ask for",
    "A device that is not in the container is a warning in UCX; what is left is another device, TCP or nothing.",
    "Name devices of the kind that the resource gives, or request the other resource.";
    "memory-not-exportable", "KV cache in memory that cannot be exported",
    "PyTorch's expandable segments map memory piece by piece: cuda_ipc and dma-buf reach the first piece only. Transfers are emulated, fail, or break under load.",
    "Take expandable_segments out for workers that send or receive KV cache.";
    "ucx-can-abort", "A setting with which UCX ends or freezes the process",
    "A worker that aborts over its log file, or hangs after an error, takes its requests with it.",
    "Take the variable out of production.";
    "debug-output", "Debug output is left on",
    "It slows every transfer and fills the log.",
    "Take it out of production; set it for one run when something is to be found.";
    "warnings-hidden", "UCX's warnings about wrong settings are hidden",
    "These warnings are the only sign of unknown names, missing devices and missing transports.",
    "Take the variable out.";
    "hidden-config", "Settings come from a file that is not in the manifest",
    "ucx.conf, nixl.cfg and nccl.conf change the same settings unseen.",
    "State the settings in the manifest, or check the file as well.";
    "ucx-without-verbs", "A UCX without RDMA is installed over NIXL's own",
    "The libucx packages on PyPI are built without verbs: no RDMA at all, and every UCX_IB_ variable is unused.",
    "Use the UCX inside NIXL's package.";
    "kv-transfer-off", "A prefill or decode worker without a way to move KV cache",
    "TensorRT-LLM moves KV cache only when cache_transceiver_config names a backend; without it the two sides never exchange any.",
    "Set cache_transceiver_config.backend in the configuration file of both sides.";
    "side-channel-host", "The address of vLLM's NIXL side channel cannot be reached from another node",
    "Peers fetch NIXL's metadata there. localhost, or nothing, is the peer itself: the handshake fails and decode computes the prompt again.",
    "Take the pod's address from fieldRef status.podIP.";
    "side-channel-port", "Two workers on one host network share a side channel port",
    "The second one cannot listen, or answers for the first.",
    "Give each its own VLLM_NIXL_SIDE_CHANNEL_PORT; each data-parallel rank takes one more.";
    "nixl-metadata", "NIXL's metadata store is set in a way that fails",
    "An empty endpoint or two stores at once make the agent fail; different namespaces make the peers invisible to each other.",
    "Set one store, with the same namespace on both sides.";
    "efa-with-ucx", "EFA devices, and NIXL's UCX backend",
    "On EFA the UCX backend needs srd and libefa in the image, emulates RDMA before UCX 1.20, and else takes TCP. LIBFABRIC is the backend for EFA.",
    "Select LIBFABRIC by the engine's own selector.";
    "libfabric-unused", "libfabric settings, and a backend that does not use libfabric",
    "FI_ variables have no effect on NIXL's UCX backend.",
    "Select LIBFABRIC, or take them out.";
    "efa-rdma-off", "EFA without RDMA",
    "Every operation is emulated or goes through TCP.",
    "FI_PROVIDER=efa and FI_EFA_USE_DEVICE_RDMA=1.";
    "backend-param", "A backend parameter that is read differently from how it looks",
    "NIXL splits engine_config at every comma, appends :1 to each name of device_list, and never reads ucx_devices.",
    "Use the UCX_ variables instead.";
    "backend-selector", "A backend is selected by something that the engine does not read",
    "Each engine has a selector of its own; the others change nothing.",
    "vLLM: backends in --kv-transfer-config. SGLang: SGLANG_DISAGGREGATION_NIXL_BACKEND. TensorRT-LLM: cache_transceiver_config.backend and TRTLLM_NIXL_KVCACHE_BACKEND.";
    "mooncake-forced", "Mooncake is forced to TCP, or in two directions",
    "MC_FORCE_TCP counts as soon as it is there, also as 0.",
    "Take it out.";
    "nccl-setting", "NCCL is kept from RDMA, GPUDirect or NVLink, or misreads a value",
    "NCCL carries the collectives within one side; a text where it expects a number is 0 to it.",
    "Take the variable out, or give a number.";
    "nccl-does-not-steer", "Network cards are chosen for NCCL and not for UCX",
    "NIXL and UCX ignore NCCL_ variables: the KV cache may take another card.",
    "Set UCX_NET_DEVICES as well.";
    "nvlink-unused", "NVLink between nodes or processes is excluded",
    "Without cuda_ipc, GPUs on one NVLink fabric use the network card.",
    "Nothing when it is on purpose.";
    "pcie-get-emulated", "Reads between GPUs without NVLink",
    "On GPUs without NVLink UCX switches reads over cuda_ipc off. An engine that pulls then reads by software emulation within a node.",
    "Where prefill and decode share a node: UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on.";
    "imex-claim-missing", "Multi-node NVLink without a claim on an IMEX channel",
    "Without the channel in the pod cuda_ipc reaches no other node, and what UCX_TLS leaves is TCP.",
    "Add a claim of a ComputeDomain to the pod and to the container.";
    "claim-incomplete", "A device claim has only one of its two halves",
    "The pod names the claim in resourceClaims, the container uses it in resources.claims. Without both the device is not in the container.",
    "Add the other half.";
    "compute-domain", "The ComputeDomain does not hold both sides",
    "NVLink reaches the nodes of one ComputeDomain. A side in another one, or a node too many, is outside: UCX takes the network card, TCP or nothing.",
    "Claim channels of one ComputeDomain on both sides, with numNodes for all their nodes.";
    "same-node-isolation", "Prefill and decode on one node, in pods that cannot share GPU memory",
    "cuda_ipc does not cross process namespaces without an IMEX channel, and EFA is not made for peers on one node: what is left is a loop through the network card, or TCP.",
    "Request an RDMA device or an IMEX channel for both pods, or let them run on different nodes.";
    "no-fabric-resource", "Nothing gives the pod an RDMA device or NVLink to other pods",
    "Without /dev/infiniband in the container UCX has no RDMA, and between pods no NVLink: KV cache takes TCP.",
    "Request the device plugin's resource (for example rdma/ib: 1), or claim the device.";
    "rdma-fewer-than-gpus", "Fewer network devices than GPUs",
    "GPUs share cards. Where the resource is only a ticket for all cards (often when it is 1), this does not matter.",
    "Ask for as many as there are GPUs, or check what one unit stands for.";
    "memlock", "Memory may not be pinned",
    "RDMA pins memory. Without IPC_LOCK the limit is the node's default, often 8 MiB: registration fails.",
    "Add IPC_LOCK to the capabilities.";
    "ulimit-stops-worker", "The worker starts only when ulimit succeeds",
    "Raising the limit needs SYS_RESOURCE when the hard limit is finite; without it the worker never starts. At least that is visible.",
    "Add SYS_RESOURCE next to IPC_LOCK, or drop the ulimit: with IPC_LOCK it is not needed.";
    "worker-never-starts", "The shell line does not start the worker",
    "The words of the worker's command are arguments of another one.",
    "Put && or a new line between them.";
    "stray-argument", "A backslash in a folded text becomes an argument of its own",
    "In a text with > the line break is gone, and the backslash escapes a blank: the program gets an argument that is one blank, or begins with one.",
    "Remove the backslashes, or use | instead of >.";
    "efa-needs-privileged", "EFA without a privileged container",
    "Registering GPU memory with EFA failed in field reports without it; IPC_LOCK alone is not enough.",
    "Set privileged: true, or prove with the active test that it works without.";
    "shared-memory-small", "Little shared memory",
    "Below 16 MiB UCX drops shared memory; engines with several GPUs need far more than the 64 MiB of a plain pod.",
    "Mount a memory volume on /dev/shm.";
    "gke-networks", "Networks asked for and networks attached differ",
    "On GKE each RDMA network must be requested as a resource and attached in the annotation. One without the other is not in the pod.",
    "List the same networks in both.";
    "roles-differ", "Prefill and decode differ in what must be the same",
    "A transfer needs a transport, a backend, a layout and a metadata store that both sides have.",
    "Give both the same value.";
    "ranks-differ", "Containers of one worker differ in a transport setting",
    "Leader and workers of one replica are stated one by one, and the lists drift apart: some ranks take another wire.",
    "Give all of them the same value.";
    "qos-differs", "UCX and NCCL ask for different traffic classes",
    "On a lossless fabric one of the two is outside its class, and drops under load.",
    "Give both the class that the fabric is configured for.";
    "roles-asymmetric", "A transport setting is on one side only",
    "It may be harmless; more often one side was forgotten.",
    "Set it on both, or on none.";
    "env-not-text", "An environment value is not a text",
    "Kubernetes refuses the object.",
    "Put quotes around it.";
    "env-stray-key", "An environment entry has a key that does not belong there",
    "In braces, a list without quotes is cut at its comma: the variable gets the first name only.",
    "Put quotes around the list.";
    "env-twice", "A variable stands twice in one list",
    "The last one counts.",
    "Remove one.";
    "env-not-expanded", "A reference in a value stays as it is written",
    "Kubernetes replaces $(NAME) only, and only by what stands earlier in the same list: not what the image sets. The shell is not involved.",
    "Write $(NAME), and define NAME earlier in the same list.";
    "duplicate-key", "A key stands twice in one mapping",
    "The last one counts, or the object is refused.",
    "Remove one.";
    "placeholder", "A placeholder is not filled in",
    "As it stands this is not deployed; what replaces it was not checked.",
    "Fill it in and check again.";
    "template", "A template that is not rendered",
    "What it will say is not known before it is rendered.",
    "Render it first: `helm template … | kvwire check env -`, or `kubectl kustomize DIR | kvwire check env -`.";
    "partial-manifest", "A part of a manifest",
    "Patches, components and values say only a part: what is missing here may stand elsewhere.",
    "Check what is deployed: `kubectl kustomize DIR | kvwire check env -`, or `kubectl get … -o yaml | kvwire check env -`.";
    "kustomize-unresolved", "A kustomization that could not be built",
    "Its parts were looked at one by one, which says less.",
    "`kubectl kustomize DIR | kvwire check env -`.";
    "not-disaggregated", "No sign that this worker sends or receives KV cache",
    "There is no KV wire to check.",
    "Nothing, when it serves alone.";
    "value-unknown", "A transport setting whose value is not in the input",
    "It is set; to what is known only at run time.",
    "Check the running pod: `kvwire check node`.";
    "env-from-unseen", "Variables may come from a Secret or ConfigMap that is not in the input",
    "A transport variable could be set there unseen.",
    "Add the ConfigMap to the input; keep transport settings out of Secrets.";
    "process-environment", "Which process of a pod was judged",
    "A start script may change the environment between the pod's first process and the engine: the engine's counts. An environment that may not be read says nothing.",
    "Name the worker's container with --container; run kubectl with the right to run commands in the pod.";
    "process-unmatched", "A pod that fits several workers of the manifest",
    "What was declared cannot be compared with what arrived before it is known which worker the pod is of.",
    "Give the manifest of that worker alone, or name its container with --container.";
    "declared-missing", "A variable that the manifest declares is not in the running process",
    "The setting has no effect: an operator or a chart drops it on the way, the pod is older than the manifest, or a start script unsets it.",
    "Compare with `kubectl get pod POD -o yaml`: when it is not there, the operator or chart does not pass it on; when it is, look at the start script.";
    "declared-changed", "A variable arrived with another value than the manifest declares",
    "What was checked is not what runs: another level overrides it, the pod is older than the manifest, or a start script changes it.",
    "Restart the pod if the manifest is newer; else look for the level that overrides it.";
    "declared-arrived", "How much of what is declared arrived in the process",
    "Only what is in the process counts.",
    "Nothing.";
    "undeclared", "Variables that decide the wire and stand in no manifest",
    "They come from the image, an operator or a start script, and change when these do.",
    "Declare those that matter.";
    "static-check-passed", "Nothing in the files forbids RDMA or NVLink",
    "Files cannot prove a wire: drivers, cabling and the fabric are not in them.",
    "Run the active test.";
    "file-unreadable", "A file or folder that cannot be read", "What is in it was not checked.", "Give a path that exists.";
    "file-too-large", "More than the limits", "It was not read, so that memory and time stay bounded.", "Give one deployment.";
    "file-not-text", "Not a text in UTF-8", "It was not read.", "Give the manifest as UTF-8.";
    "file-not-yaml", "Not YAML", "What follows the fault was not checked.", "Mend the line that is shown.";
    "yaml-limits", "YAML that expands beyond the limits", "It was not followed, so that memory and time stay bounded.", "Give the manifests without generated aliases.";
    "no-workers", "No worker in the input", "Nothing was judged.", "Give the manifests of the prefill and decode workers.";
    "waiver-unknown", "A rule that is switched off and does not exist", "The name may be misspelt.", "`kvwire explain` lists the names.";
}
