//! Lines of UCX and NIXL that matter, as findings with the line as evidence.
//!
//! The texts are those of UCX 1.13 to 1.23 and NIXL 0.10 to 1.5.

use checks::{Finding, Status};

use super::line::Line;

/// A line that matters: which rule it met, and the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    rule: usize,
    /// The text without time and process.
    pub(crate) text: String,
}

struct Rule {
    id: &'static str,
    /// All of these stand in the line.
    marks: &'static [&'static str],
    status: Status,
    title: &'static str,
    next: &'static str,
}

const RULES: [Rule; 34] = [
    Rule {
        id: "ucx-unused-variable",
        marks: &["unused environment variable"],
        status: Status::Warn,
        title: "UCX does not know, or does not use, a variable that is set",
        next: "correct the name (UCX suggests one where it can) or remove it; a valid UCX_IB_ or UCX_CUDA_ name in this line means that UCX loaded no such module",
    },
    Rule {
        id: "ucx-deprecated-variable",
        marks: &["is deprecated (set UCX_WARN_UNUSED_ENV_VARS=n"],
        status: Status::Warn,
        title: "a UCX variable that is set is deprecated",
        next: "replace it: a later UCX will not know it",
    },
    Rule {
        id: "ucx-device-missing",
        marks: &["device", "not available, please use one or more of"],
        status: Status::Warn,
        title: "a device that was asked for is not there, and UCX went on without it",
        next: "correct UCX_NET_DEVICES (the line lists what there is), or give the container the device",
    },
    Rule {
        id: "ucx-transport-missing",
        marks: &["transport", "not available, please use one or more of"],
        status: Status::Warn,
        title: "a transport that was asked for is not there, and UCX went on without it",
        next: "correct UCX_TLS (names are case-sensitive, without blanks or quotes), or use an image whose UCX has it",
    },
    Rule {
        id: "ucx-no-transport",
        marks: &["no usable transports/devices"],
        status: Status::Fail,
        title: "UCX found no usable transport",
        next: "correct UCX_TLS and UCX_NET_DEVICES, or give the container the devices that they name",
    },
    Rule {
        id: "ucx-no-transport",
        marks: &["no active messages transport to"],
        status: Status::Fail,
        title: "UCX has no transport that NIXL can use to the other side",
        next: "NIXL needs one that notices a dead peer: allow rc, ud or tcp in UCX_TLS, and its device in UCX_NET_DEVICES",
    },
    Rule {
        id: "ucx-bad-value",
        marks: &["Invalid value for"],
        status: Status::Fail,
        title: "UCX refuses the value of a variable",
        next: "correct the value: depending on the variable, UCX stops or silently drops a whole kind of device",
    },
    Rule {
        id: "ucx-component-dropped",
        marks: &["Failed to read MD config"],
        status: Status::Fail,
        title: "UCX dropped a whole component because of a wrong value, and went on without it",
        next: "correct the value that UCX names in the line before it",
    },
    Rule {
        id: "ucx-component-dropped",
        marks: &["GPUDirect RDMA"],
        status: Status::Fail,
        title: "UCX dropped an RDMA device: it cannot reach GPU memory",
        next: "load nvidia_peermem, or use a driver with dma-buf; UCX_IB_GPU_DIRECT_RDMA=yes demands one of them",
    },
    Rule {
        id: "ucx-version-mismatch",
        marks: &["UCP API version is incompatible"],
        status: Status::Fail,
        title: "the UCX that was loaded is older than the one it was built for",
        next: "remove the other UCX from LD_LIBRARY_PATH; NIXL's wheel brings its own",
    },
    Rule {
        id: "ucx-emulation-refused",
        marks: &["No zero-copy protocol found"],
        status: Status::Fail,
        title: "no transport of UCX can carry this operation without software emulation",
        next: "find out why the RDMA device was not chosen: UCX_TLS, UCX_NET_DEVICES, UCX_RNDV_THRESH, provider library, port",
    },
    Rule {
        id: "ucx-too-old-for-gpu",
        marks: &["CUDA support is limited"],
        status: Status::Warn,
        title: "this UCX is too old for GPU memory",
        next: "use a NIXL with UCX 1.19 or newer",
    },
    Rule {
        id: "cuda-runtime-missing",
        marks: &["CUDA runtime: libcudart.so", "was not found"],
        status: Status::Fail,
        title: "the CUDA runtime library is not there, and without it UCX may take GPU memory for host memory",
        next: "install it beside NIXL (pip install nvidia-cuda-runtime-cu12, for CUDA 13 nvidia-cuda-runtime), or add its folder to LD_LIBRARY_PATH; an engine has it from PyTorch",
    },
    Rule {
        id: "ucx-no-gpu-support",
        marks: &["UCX_TLS=", "leaves GPU memory out"],
        status: Status::Fail,
        title: "UCX_TLS leaves out GPU memory",
        next: "add cuda_copy to UCX_TLS, and cuda_ipc for NVLink",
    },
    Rule {
        id: "ucx-no-gpu-support",
        marks: &["VRAM memory is detected as host"],
        status: Status::Fail,
        title: "UCX takes GPU memory for host memory: its CUDA modules were not loaded, or not in time",
        next: "use one NIXL wheel that fits the CUDA version, and do not set UCX_MODULE_DIR to another installation; see with UCX_LOG_LEVEL=debug which module did not load",
    },
    Rule {
        id: "ucx-no-gpu-support",
        marks: &["does not enable CUDA memory support"],
        status: Status::Fail,
        title: "UCX_TLS leaves out GPU memory",
        next: "add cuda_copy to UCX_TLS, and cuda_ipc for NVLink",
    },
    Rule {
        id: "efa-over-ucx",
        marks: &["Amazon EFA", "UCX backend was configured"],
        status: Status::Warn,
        title: "the node has EFA, and NIXL recommends another backend for it",
        next: "read which class was measured; engines choose LIBFABRIC by their own setting, not by an environment variable",
    },
    Rule {
        id: "rdma-provider-missing",
        marks: &["couldn't load driver"],
        status: Status::Warn,
        title: "the library of an RDMA device could not be loaded",
        next: "put the provider library into the image that fits the libibverbs which UCX loaded",
    },
    Rule {
        id: "rdma-registration-failed",
        marks: &["ibv_reg_mr", "failed"],
        status: Status::Fail,
        title: "an RDMA device could not register the memory",
        next: "for GPU memory load nvidia_peermem and turn expandable_segments off; else raise the locked-memory limit",
    },
    Rule {
        id: "memlock-limit",
        marks: &["Please set max locked memory"],
        status: Status::Fail,
        title: "the locked-memory limit is too small for RDMA",
        next: "add the capability IPC_LOCK, or run with `ulimit -l unlimited`",
    },
    Rule {
        id: "roce-address",
        marks: &["ibv_create_ah", "failed"],
        status: Status::Fail,
        title: "an RDMA port cannot address the other side",
        next: "unset UCX_IB_GID_INDEX, see that both ports have a routable RoCE v2 address, and that the link is up",
    },
    Rule {
        id: "rdma-retry-exceeded",
        marks: &["retry count", "xceeded"],
        status: Status::Fail,
        title: "an RDMA connection gave up after its retries",
        next: "look at link, cable, lossless settings (PFC, ECN) and traffic class of both ports, and at the peer",
    },
    Rule {
        id: "shm-full",
        marks: &["Not enough memory to write total"],
        status: Status::Fail,
        title: "/dev/shm is too small",
        next: "mount a larger /dev/shm (an emptyDir of medium Memory)",
    },
    Rule {
        id: "no-fabric-handle",
        marks: &["does not have fabric property"],
        status: Status::Warn,
        title: "GPU memory cannot be exported over the NVLink fabric",
        next: "allocate it with fabric handles (VMM), or expect RDMA",
    },
    Rule {
        id: "ucx-unreachable",
        marks: &["connect(fd=", "failed"],
        status: Status::Fail,
        title: "UCX tried an address of the other side that leads nowhere",
        next: "set UCX_NET_DEVICES to an interface that reaches the other side: an address that both hosts have, as that of a container bridge, leads back to the host itself",
    },
    Rule {
        id: "ucx-unreachable",
        marks: &["Unexpected UCX error: Destination is unreachable"],
        status: Status::Fail,
        title: "UCX found no way to the other side",
        next: "set UCX_NET_DEVICES to an interface that reaches the other side",
    },
    Rule {
        id: "ucx-endpoint-failed",
        marks: &["set_ep_failed"],
        status: Status::Fail,
        title: "UCX gave up the connection to the other side",
        next: "look at the link and at the other side; an engine that goes on after this may serve wrong data",
    },
    Rule {
        id: "ucx-unsupported",
        marks: &["Unexpected UCX error: Unsupported operation"],
        status: Status::Fail,
        title: "no transport of UCX can do what NIXL asked for with this memory",
        next: "for GPU memory see that UCX_TLS keeps cuda_copy, and that this UCX was built for the CUDA that runs",
    },
    Rule {
        id: "rdma-protection-error",
        marks: &["rotection error"],
        status: Status::Fail,
        title: "an RDMA device refused access to memory that was registered",
        next: "for GPU memory from a virtual-memory allocator (expandable_segments) set UCX_CUDA_COPY_REG_WHOLE_ALLOC=off, or use a newer UCX",
    },
    Rule {
        id: "rdma-registration-failed",
        marks: &["ailed to register", "memory"],
        status: Status::Fail,
        title: "the memory could not be registered",
        next: "for GPU memory load nvidia_peermem and turn expandable_segments off; else raise the locked-memory limit",
    },
    Rule {
        id: "rdma-registration-failed",
        marks: &["process command REG_MR"],
        status: Status::Fail,
        title: "the EFA device could not register the memory",
        next: "register less host memory, or back it by huge pages: the device has room for so many pages",
    },
    Rule {
        id: "gpu-import-failed",
        marks: &["cuMemImportFromShareableHandle", "failed"],
        status: Status::Fail,
        title: "GPU memory of the other side could not be mapped over NVLink",
        next: "see that both sides are in one NVLink domain (cluster UUID and clique) and have an IMEX channel; else set UCX_CUDA_IPC_ENABLE_MNNVL=n",
    },
    Rule {
        id: "gpu-import-failed",
        marks: &["cuIpcOpenMemHandle", "failed"],
        status: Status::Fail,
        title: "GPU memory of the other process could not be mapped",
        next: "processes that share GPU memory need one PID namespace, or memory with fabric handles",
    },
    Rule {
        id: "nixl-no-notification-path",
        marks: &["genNotif", "no specified or potential backend"],
        status: Status::Fail,
        title: "NIXL has no backend left over which it could notify the other side",
        next: "the connection was lost before: look for its error, and restart both sides",
    },
];

/// Longest line kept, in bytes.
const TEXT_MAX: usize = 1000;

/// What the rules of one finding say: title, what to do, and the words by which a line is known.
pub(crate) fn explained(id: &str) -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    RULES.iter().filter(|rule| rule.id == id).map(|rule| (rule.title, rule.next, rule.marks)).collect()
}

/// The findings that lines can become, with the title of the first rule of each.
pub(crate) fn listed() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<(&str, &str)> = RULES.iter().map(|rule| (rule.id, rule.title)).collect();
    all.dedup_by_key(|(id, _)| *id);
    all
}

impl Trouble {
    /// The line, when it matters.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let rule = RULES.iter().position(|rule| rule.marks.iter().all(|mark| text.contains(mark)))?;
        Some(Self { rule, text: text.chars().take(TEXT_MAX).collect() })
    }

    /// The network devices that the line says are not there: `network devices 'a','b' are not available, please use …`;
    /// `None` for another line.
    pub(crate) fn missing_devices(&self) -> Option<Vec<&str>> {
        let (_, rest) = self.text.split_once("network device")?;
        let list = rest.split(" not available, please use").next()?;
        // What was cut off at the end has no second quote.
        let names: Vec<&str> = list.split('\'').collect();
        let whole = names.len().saturating_sub(1);
        Some(names[..whole].iter().skip(1).step_by(2).copied().collect())
    }
}

/// One finding for each rule that the lines of one side met. `run_went_on` is false when the engine failed: what
/// UCX calls an error then explains the failure; in a run that went on it did not stop anything and is a warning.
pub(crate) fn findings(side: &str, lines: &[Trouble], run_went_on: bool) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (index, rule) in RULES.iter().enumerate() {
        let met: Vec<&Trouble> = lines.iter().filter(|line| line.rule == index).collect();
        if met.is_empty() {
            continue;
        }
        let status = if run_went_on && rule.status == Status::Fail { Status::Warn } else { rule.status };
        let mut finding =
            Finding::new(rule.id, status, format!("{side}: {}", rule.title)).next_step(rule.next);
        if rule.id == "ucx-unused-variable" {
            finding = finding.detail(unused(&met));
        }
        findings.push(finding.evidence(met.into_iter().map(|line| line.text.clone())));
    }
    findings
}

/// The same for lines as a log has them, with time and process, that a side quotes for its failure.
pub(crate) fn quoted(side: &str, log: &[String]) -> Vec<Finding> {
    let lines: Vec<Trouble> = log.iter().filter_map(|line| Trouble::of(Line::parse(line).text)).collect();
    findings(side, &lines, false)
}

/// `UCX_RNDV_TRESH (maybe UCX_RNDV_THRESH)` for every name in the lines.
fn unused(lines: &[&Trouble]) -> String {
    let names = lines.iter().filter_map(|line| line.text.split_once("unused environment variable"));
    let names = names.filter_map(|(_, rest)| rest.split_once(": ")).flat_map(|(_, list)| list.split("; "));
    let words: Vec<String> =
        names.map(|name| name.trim().replace("(maybe: ", "(maybe ").replace("?)", ")")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(log: &str) -> Vec<Finding> {
        let lines: Vec<Trouble> = log.lines().filter_map(|l| Trouble::of(Line::parse(l).text)).collect();
        findings("initiator", &lines, false)
    }

    fn ids(log: &str) -> Vec<String> {
        of(log).into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn devices_that_are_not_there_are_read_from_the_line() {
        let of = |text: &str| {
            let line = Trouble::of(text).unwrap();
            line.missing_devices().map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        let end = "not available, please use one or more of: 'lo'(tcp), 'eth0'(tcp)";
        assert_eq!(of(&format!("network device 'mlx5_9:1' is {end}")).unwrap(), ["mlx5_9:1"]);
        assert_eq!(of(&format!("network devices 'a','b' are {end}")).unwrap(), ["a", "b"]);
        assert_eq!(of(&format!("transport 'rc' is {end}")), None);
        let long = format!("network devices {} are {end}", vec!["'interface'"; 200].join(","));
        assert!(of(&long).unwrap().iter().all(|name| name == "interface"));
    }

    #[test]
    fn each_kind_of_logged_trouble_is_found_in_real_logs() {
        for (log, expected) in [
            (include_str!("logs/ucx-1.13.1-info.log"), &["ucx-version-mismatch"][..]),
            (include_str!("logs/ucx-1.18.1-info.log"), &["ucx-unused-variable", "ucx-version-mismatch"]),
            (include_str!("logs/ucx-1.20.1-info.log"), &["ucx-unused-variable", "ucx-version-mismatch"]),
            (include_str!("logs/ucx-1.21-badval.log"), &["ucx-bad-value"]),
            (
                include_str!("logs/ucx-1.21-netdev-missing-tcp.log"),
                &["ucx-device-missing", "ucx-no-transport"],
            ),
            (include_str!("logs/ucx-1.21-netdev-missing.log"), &["ucx-device-missing", "ucx-no-transport"]),
            (include_str!("logs/ucx-1.21-quotes.log"), &["ucx-transport-missing", "ucx-no-transport"]),
            (include_str!("logs/ucx-1.21-rc-no-ib.log"), &["ucx-transport-missing", "ucx-no-transport"]),
            (include_str!("logs/ucx-1.21-rc-tcp-no-ib.log"), &["ucx-transport-missing"]),
            (include_str!("logs/ucx-1.21-rc_mlx5.log"), &["ucx-transport-missing"]),
            (include_str!("logs/ucx-1.21-smself.log"), &["ucx-no-transport"]),
            (include_str!("logs/ucx-1.21-deny.log"), &["ucx-no-transport"]),
            (include_str!("logs/ucx-1.21-space.log"), &["ucx-transport-missing"]),
            (include_str!("logs/ucx-1.21-unknown-vars.log"), &["ucx-unused-variable"]),
            (include_str!("logs/ucx-1.21-emulation-off.log"), &["ucx-emulation-refused"]),
            (include_str!("logs/ucx-1.23-tables.log"), &[]),
        ] {
            assert_eq!(ids(log), expected, "{}", log.lines().next().unwrap_or_default());
        }
    }

    #[test]
    fn each_kind_that_needs_hardware_is_found_in_its_line() {
        for (line, id) in [
            (
                "ucp_context.c:1 UCX  WARN  UCX version is 1.18 which is less than 1.19, CUDA support is limited",
                "ucx-too-old-for-gpu",
            ),
            ("E1 VRAM memory is detected as host by UCX", "ucx-no-gpu-support"),
            ("kvwire: UCX_TLS=rc,cuda_ipc leaves GPU memory out", "ucx-no-gpu-support"),
            (
                "kvwire: CUDA runtime: libcudart.so.12 was not found; searched: libcudart.so.12",
                "cuda-runtime-missing",
            ),
            (
                "Invalid UCX_TLS=tcp for NIXL UCX backend: NVIDIA GPU(s) are present, but this setting does not enable CUDA memory support.",
                "ucx-no-gpu-support",
            ),
            ("W1 16 Amazon EFA(s) were detected, but the UCX backend was configured", "efa-over-ucx"),
            ("libibverbs: Warning: couldn't load driver 'libefa-rdmav34.so'", "rdma-provider-missing"),
            (
                "ibv_reg_mr(address=0x7f, length=4096, access=0xf) failed: Bad address",
                "rdma-registration-failed",
            ),
            (
                "ibv_create_cq(cqe=4096) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)",
                "memlock-limit",
            ),
            (
                "ibv_create_ah(dlid=0 sl=0 port=1 dgid=fe80::1 sgid_index=0) failed: No such device",
                "roce-address",
            ),
            ("Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81)", "rdma-retry-exceeded"),
            ("mm_posix.c:1 UCX  ERROR Not enough memory to write total of 4292720 bytes", "shm-full"),
            ("the memory does not have fabric property", "no-fabric-handle"),
            ("uct_md.c:1 Failed to read MD config", "ucx-component-dropped"),
            (
                "Couldn't enable GPUDirect RDMA. Please make sure nv_peer_mem or dmabuf",
                "ucx-component-dropped",
            ),
            ("connect(fd=17, dest_addr=172.17.0.1:48439) failed: Connection refused", "ucx-unreachable"),
            ("Unexpected UCX error: Destination is unreachable", "ucx-unreachable"),
            ("ucp_ep.c:1 UCX  ERROR set_ep_failed: ep 0x7f err Connection reset", "ucx-endpoint-failed"),
            ("ucx_enums.cpp:58] Unexpected UCX error: Unsupported operation", "ucx-unsupported"),
            ("Local protection error on mlx5_0:1/RoCE (synd 0x4 vend 0x51)", "rdma-protection-error"),
            ("Remote protection error on mlx5_2:1/IB", "rdma-protection-error"),
            ("Failed to register memory: Invalid argument [22]", "rdma-registration-failed"),
            ("efa_0: Failed to process command REG_MR (opcode 7) err -12", "rdma-registration-failed"),
            ("cuMemImportFromShareableHandle failed: invalid resource handle", "gpu-import-failed"),
            ("cuIpcOpenMemHandle() failed: invalid device context", "gpu-import-failed"),
            ("genNotif: no specified or potential backend had a notification", "nixl-no-notification-path"),
            (
                "UCX_IB_ADDR_TYPE is deprecated (set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)",
                "ucx-deprecated-variable",
            ),
        ] {
            assert_eq!(ids(line), [id], "{line}");
        }
    }

    #[test]
    fn unused_variables_are_named_with_the_suggestion_and_the_line() {
        let findings = of(include_str!("logs/ucx-1.21-unknown-vars.log"));
        let finding = &findings[0];
        assert!(finding.detail.contains("UCX_RNDV_TRESH (maybe UCX_RNDV_THRESH)"), "{}", finding.detail);
        assert!(finding.detail.contains("UCX_IB_REG_METHODS"), "{}", finding.detail);
        assert_eq!(finding.evidence.len(), 1);
        assert!(finding.evidence[0].starts_with("unused environment variables:"));
    }

    #[test]
    fn an_error_that_stopped_nothing_is_a_warning() {
        let lines = [Trouble::of("Failed to read MD config").unwrap()];
        assert_eq!(findings("target", &lines, true)[0].status, Status::Warn);
        assert_eq!(findings("target", &lines, false)[0].status, Status::Fail);
    }

    #[test]
    fn chatter_is_not_trouble() {
        for line in ["put ok data=7", "async handler table is not empty during exit", "Version 1.21.0"] {
            assert_eq!(Trouble::of(line), None, "{line}");
        }
    }
}
