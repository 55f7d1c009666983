//! The list of what is read on a node. Both readers, the one in Rust and the shell script for pods without kvwire,
//! are made from it, so that they cannot drift apart.

/// How something is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The text of a file.
    Text,
    /// The text of a file up to its first empty line.
    Paragraph,
    /// The names in a directory.
    Names,
    /// The target of a symbolic link.
    Link,
    /// The path without symbolic links; nothing is noted where there is no such file.
    Real,
    /// Type and permissions of a device node.
    Node,
    /// For each port directory: the GIDs that are not zero, with type and network device.
    Gids,
    /// The PCI devices from the root of the bus down to the device that the path stands for.
    PciPath,
    /// The same, where the path is a PCI device that is an NVIDIA GPU.
    GpuPath,
}

/// Path pattern (`*` within one name) and how what it matches is read.
pub(super) const WANTED: &[(How, &str)] = &[
    // Who and what this is.
    (How::Text, "/proc/sys/kernel/hostname"),
    (How::Text, "/proc/sys/kernel/osrelease"),
    (How::Text, "/proc/sys/kernel/random/boot_id"),
    (How::Text, "/etc/machine-id"),
    (How::Paragraph, "/proc/cpuinfo"),
    (How::Text, "/proc/cmdline"),
    (How::Text, "/sys/class/dmi/id/sys_vendor"),
    (How::Text, "/sys/class/dmi/id/product_name"),
    // What this process may do.
    (How::Text, "/proc/self/limits"),
    (How::Text, "/proc/self/status"),
    (How::Text, "/proc/self/cgroup"),
    (How::Text, "/proc/sys/kernel/yama/ptrace_scope"),
    (How::Link, "/proc/self/ns/net"),
    (How::Link, "/proc/self/ns/pid"),
    (How::Link, "/proc/self/ns/ipc"),
    (How::Link, "/proc/self/ns/mnt"),
    (How::Link, "/proc/self/ns/user"),
    (How::Text, "/sys/fs/cgroup/cpu.max"),
    (How::Text, "/sys/fs/cgroup/cpu.stat"),
    (How::Text, "/sys/fs/cgroup/memory.max"),
    (How::Text, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
    (How::Text, "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    (How::Text, "/sys/fs/cgroup/cpu/cpu.stat"),
    // RDMA devices.
    (How::Names, "/dev/infiniband"),
    (How::Node, "/dev/infiniband/uverbs*"),
    (How::Node, "/dev/infiniband/rdma_cm"),
    (How::Names, "/sys/class/infiniband"),
    (How::Text, "/sys/class/infiniband_verbs/uverbs*/ibdev"),
    (How::Text, "/sys/class/infiniband/*/fw_ver"),
    (How::Text, "/sys/class/infiniband/*/hca_type"),
    (How::Text, "/sys/class/infiniband/*/board_id"),
    (How::Text, "/sys/class/infiniband/*/node_guid"),
    (How::Text, "/sys/class/infiniband/*/node_type"),
    (How::Text, "/sys/class/infiniband/*/node_desc"),
    (How::Link, "/sys/class/infiniband/*/device/driver"),
    (How::Link, "/sys/class/infiniband/*/device/physfn"),
    (How::PciPath, "/sys/class/infiniband/*/device"),
    (How::Text, "/sys/class/infiniband/*/ports/*/state"),
    (How::Text, "/sys/class/infiniband/*/ports/*/phys_state"),
    (How::Text, "/sys/class/infiniband/*/ports/*/rate"),
    (How::Text, "/sys/class/infiniband/*/ports/*/link_layer"),
    (How::Text, "/sys/class/infiniband/*/ports/*/lid"),
    (How::Text, "/sys/class/infiniband/*/ports/*/sm_lid"),
    (How::Text, "/sys/class/infiniband/*/ports/*/pkeys/?"),
    (How::Gids, "/sys/class/infiniband/*/ports/*"),
    (How::Text, "/sys/class/infiniband/*/ports/*/hw_counters/*"),
    (How::Text, "/sys/class/infiniband/*/ports/*/counters/*"),
    (How::Text, "/sys/class/infiniband/*/tc/*/traffic_class"),
    (How::Text, "/sys/class/net/*/ecn/roce_np/enable/*"),
    (How::Text, "/sys/class/net/*/ecn/roce_rp/enable/*"),
    (How::Text, "/sys/class/net/*/operstate"),
    (How::Text, "/sys/module/mlx5_core/version"),
    // GPUs and how they reach a network card.
    (How::GpuPath, "/sys/bus/pci/devices/*"),
    (How::Names, "/proc/driver/nvidia/gpus"),
    (How::Text, "/proc/driver/nvidia/gpus/*/information"),
    (How::Text, "/proc/driver/nvidia/version"),
    (How::Names, "/sys/module"),
    (How::Text, "/sys/module/nvidia_peermem/version"),
    (How::Text, "/sys/module/nv_peer_mem/version"),
    (How::Text, "/sys/module/gdrdrv/version"),
    (How::Text, "/sys/kernel/mm/memory_peers/nv_mem/version"),
    (How::Node, "/dev/gdrdrv"),
    (How::Node, "/dev/nvidiactl"),
    (How::Names, "/dev/nvidia-caps-imex-channels"),
    (How::Node, "/dev/nvidia-caps-imex-channels/channel*"),
    (How::Names, "/sys/class/iommu"),
    (How::Text, "/sys/kernel/iommu_groups/*/type"),
    // Libraries.
    (How::Real, "/usr/lib/libibverbs.so.1"),
    (How::Real, "/usr/lib64/libibverbs.so.1"),
    (How::Real, "/usr/lib/*/libibverbs.so.1"),
    (How::Real, "/usr/lib64/libefa.so.1"),
    (How::Real, "/usr/lib/*/libefa.so.1"),
    (How::Real, "/usr/lib64/libibverbs/lib*-rdmav*.so"),
    (How::Real, "/usr/lib/*/libibverbs/lib*-rdmav*.so"),
    (How::Text, "/etc/libibverbs.d/*.driver"),
    (How::Real, "/usr/lib64/libgdrapi.so*"),
    (How::Real, "/usr/lib/*/libgdrapi.so*"),
    (How::Real, "/usr/local/lib/libgdrapi.so*"),
    (How::Real, "/usr/lib64/libucp.so*"),
    (How::Real, "/usr/lib/*/libucp.so*"),
    (How::Real, "/usr/local/lib/libucp.so*"),
    (How::Real, "/usr/local/ucx/lib/libucp.so*"),
    (How::Real, "/opt/ucx/lib/libucp.so*"),
    (How::Real, "/opt/hpcx/ucx/lib/libucp.so*"),
    (How::Real, "/opt/nvidia/nvda_nixl/lib/*/libnixl_capi.so"),
    (How::Real, "/opt/nvidia/nvda_nixl/lib/libnixl_capi.so"),
    (How::Real, "/usr/local/nixl/lib/*/libnixl_capi.so"),
    (How::Real, "/usr/local/lib/libnixl_capi.so"),
];

/// Folders that Python packages lie in; wheels are looked for below each, and below that of `$VIRTUAL_ENV`.
pub(super) const SITE_PACKAGES: &[&str] = &[
    "/usr/lib/python3/dist-packages",
    "/usr/local/lib/python3*/dist-packages",
    "/usr/local/lib/python3*/site-packages",
    "/usr/lib/python3*/site-packages",
    "/opt/*/lib/python3*/site-packages",
    "/opt/*/*/lib/python3*/site-packages",
    "/root/.local/lib/python3*/site-packages",
];

/// What a NIXL wheel brings, below a folder of [`SITE_PACKAGES`]. The leading dot of a name is given, since `*` does
/// not match it.
pub(super) const IN_WHEEL: &[&str] = &[
    ".nixl_cu*.mesonpy.libs/libnixl_capi.so",
    "nixl_cu*.libs/libucp-*.so*",
    "nixl_cu*.libs/libibverbs-*.so*",
    "nixl_cu*.libs/ucx/libuct_ib.so*",
    "nixl_cu*.libs/ucx/libuct_ib_efa.so*",
    "nixl_cu*.libs/ucx/libuct_cuda.so*",
];

/// Files of each PCI device on the way to a GPU or network card.
pub(super) const OF_PCI_DEVICE: &[&str] = &[
    "class",
    "vendor",
    "device",
    "numa_node",
    "current_link_speed",
    "max_link_speed",
    "current_link_width",
    "max_link_width",
];

/// Environment variables that are kept: names that begin so. None of them carries a secret.
pub(super) const VARIABLES: &[&str] = &[
    "UCX_",
    "NIXL_",
    "RDMAV_DRIVERS",
    "IBV_DRIVERS",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
];
