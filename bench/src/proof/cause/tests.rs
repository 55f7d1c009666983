use super::super::class::Expect;
use super::super::judge::DeviceShare;
use super::super::ucx::Lane;
use super::*;

fn port(name: &str, state: &str, opens: bool) -> Port {
    Port { name: name.to_owned(), state: state.to_owned(), opens }
}

fn with_ports(ports: &[Port]) -> Ability {
    Ability { ports: ports.to_vec(), cross_memory_attach: true, ..Ability::default() }
}

fn healthy() -> Ability {
    with_ports(&[port("mlx5_0:1", "4: ACTIVE", true), port("mlx5_1:1", "4: ACTIVE", true)])
}

fn carried(class: Class, over: Option<Class>, devices: &[(&str, f64)]) -> Transport {
    let device = |(name, share): &(&str, f64)| DeviceShare {
        side: "initiator".to_owned(),
        device: (*name).to_owned(),
        transport: None,
        bytes: Some(1),
        share_percent: Some(*share),
    };
    Transport {
        class,
        over,
        devices: devices.iter().map(device).collect(),
        evidence: Vec::new(),
        doubt: None,
        meets_expectation: None,
    }
}

fn rdma() -> Expected {
    Expected { asked: Expect::Rdma, class: Some(Class::Rdma), why: "asked for".to_owned(), ranks: Vec::new() }
}

/// The title of the finding when tcp carried the bytes of a run with these means.
fn told(initiator: &Ability, target: &Ability, given: &[(&str, &str)], logged: &[Finding]) -> Finding {
    let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let setting = Setting { initiator, target, given: &given, logged, op: Op::Read, gpu: None };
    explain("READ 4 KiB x1", &rdma(), &carried(Class::Tcp, None, &[("eth0", 100.0)]), &setting)
}

#[test]
fn the_first_line_says_what_was_expected_what_carried_the_bytes_and_why() {
    for (given, cause) in [
        (&[("UCX_TLS", "tcp")][..], "UCX_TLS=tcp leaves rdma out"),
        (&[("UCX_TLS", "^rc,ud")], "UCX_TLS=^rc,ud leaves rdma out"),
        (&[("UCX_TLS", "^ib")], "UCX_TLS=^ib leaves rdma out"),
        (&[("UCX_RNDV_THRESH", "8192")], "UCX_RNDV_THRESH=8192 takes away lanes"),
        (&[("UCX_NET_DEVICES", "eth0")], "UCX_NET_DEVICES=eth0 may leave"),
        (&[("UCX_TLS", "rc_mlx5,cuda_copy"), ("UCX_RNDV_THRESH", "inf")], "provider library"),
        (&[("UCX_TLS", "^cuda_ipc"), ("UCX_NET_DEVICES", "all")], "provider library"),
    ] {
        let finding = told(&healthy(), &healthy(), given, &[]);
        let expected = format!("expected rdma, but tcp (eth0) carried the bytes: {cause}");
        assert!(finding.title.starts_with(&expected) || finding.title.contains(cause), "{}", finding.title);
        assert_eq!(finding.status, Status::Fail);
        assert!(!finding.next_step.is_empty() && finding.evidence[0] == "case READ 4 KiB x1");
    }
}

#[test]
fn a_side_without_a_usable_device_is_named() {
    for (target, cause) in [
        (with_ports(&[]), "the target has no RDMA device"),
        (with_ports(&[port("mlx5_0:1", "1: DOWN", true)]), "no RDMA port of the target is up"),
        (with_ports(&[port("mlx5_0:1", "4: ACTIVE", false)]), "the target may not open its RDMA device"),
    ] {
        let finding = told(&healthy(), &target, &[], &[]);
        assert!(finding.title.ends_with(cause), "{}", finding.title);
    }
}

#[test]
fn what_ucx_itself_complained_about_comes_before_guesses() {
    let line = "network device 'mlx5_9:1' is not available, please use one or more of: 'eth0'(tcp)";
    let missing = Finding::new("ucx-device-missing", Status::Warn, "a device is not there")
        .evidence([line.to_owned()])
        .next_step("correct it");
    let finding = told(&healthy(), &healthy(), &[("UCX_NET_DEVICES", "mlx5_9:1,eth0")], &[missing]);
    assert!(finding.title.ends_with("a device is not there"), "{}", finding.title);
    assert!(finding.evidence.contains(&line.to_owned()));
}

#[test]
fn a_variable_of_the_targets_own_environment_counts_too() {
    let mut target = healthy();
    target.environment.insert("UCX_TLS".to_owned(), "tcp,cuda_copy".to_owned());
    let finding = told(&healthy(), &target, &[], &[]);
    assert!(finding.evidence.iter().any(|line| line.contains("the target's environment")), "{finding:?}");
}

#[test]
fn shared_memory_is_left_out_by_lists_that_name_only_self() {
    let shm = Expected {
        asked: Expect::Auto,
        class: Some(Class::Shm),
        why: "one host".to_owned(),
        ranks: Vec::new(),
    };
    let none = Ability::default();
    for (list, left_out) in [("tcp,self", true), ("^sm", true), ("tcp,cma", false), ("all", false)] {
        let given = BTreeMap::from([("UCX_TLS".to_owned(), list.to_owned())]);
        let setting =
            Setting { initiator: &none, target: &none, given: &given, logged: &[], op: Op::Read, gpu: None };
        let finding = explain("x", &shm, &carried(Class::Tcp, None, &[]), &setting);
        assert_eq!(finding.title.contains("leaves shm out"), left_out, "{list}: {}", finding.title);
    }
}

#[test]
fn one_of_two_rails_is_a_finding_and_two_of_two_is_none() {
    let (ours, given) = (healthy(), BTreeMap::new());
    let setting =
        Setting { initiator: &ours, target: &ours, given: &given, logged: &[], op: Op::Read, gpu: None };
    let found = |devices: &[(&str, f64)], row: Option<&Row>| {
        rails("x", &carried(Class::Rdma, None, devices), row, &setting).map(|finding| finding.title)
    };
    let one = found(&[("mlx5_0:1", 100.0)], None);
    assert_eq!(one.as_deref(), Some("1 of 2 rails carried data"));
    assert_eq!(found(&[("mlx5_0:1", 60.0), ("mlx5_1:1", 40.0)], None), None);
    let lane =
        |device: &str| Lane { transport: "rc_mlx5".to_owned(), device: device.to_owned(), percent: None };
    let lanes = ["a:1", "b:1", "c:1", "d:1"].map(lane).to_vec();
    let row = Row { sizes: (0, u64::MAX), how: "zero-copy".to_owned(), lanes };
    let two = found(&[("a:1", 60.0), ("b:1", 40.0)], Some(&row));
    assert_eq!(two.as_deref(), Some("2 of 4 rails carried data"));
    assert!(rails("x", &carried(Class::Tcp, None, &[("lo", 100.0)]), Some(&row), &setting).is_none());
    // One port that was chosen for the memory is all that could carry, whatever else the host has.
    let alone = |list: &str| {
        let told = Ability { net_devices: vec![Some(list.to_owned())], ..healthy() }.of_rank(0);
        let setting = Setting { initiator: &told, ..setting };
        rails("x", &carried(Class::Rdma, None, &[("mlx5_0:1", 100.0)]), None, &setting).is_none()
    };
    assert!(alone("mlx5_0:1,eth0,lo") && !alone("mlx5_0:1,mlx5_1:1,eth0") && !alone("all"));
    let wished = BTreeMap::from([("UCX_MAX_RMA_RAILS".to_owned(), "1".to_owned())]);
    let setting = Setting { given: &wished, ..setting };
    assert!(rails("x", &carried(Class::Rdma, None, &[("mlx5_0:1", 100.0)]), None, &setting).is_none());
}

#[test]
fn strict_is_promised_from_ucx_1_21_on() {
    for (version, promised) in [
        (Some("1.20.0"), false),
        (Some("1.21.0"), true),
        (Some("1.23.0"), true),
        (Some("2.0"), true),
        (None, false),
    ] {
        assert_eq!(strict_doubt("target", version).is_none(), promised, "{version:?}");
    }
}

#[test]
fn two_copies_of_ucx_are_a_failure_with_both_paths() {
    let paths = ["/a/libucs.so.0".to_owned(), "/b/libucs.so.0".to_owned()];
    let finding = two_copies("initiator", &paths).unwrap();
    assert_eq!((finding.status, finding.evidence.len()), (Status::Fail, 2));
    assert!(two_copies("initiator", &paths[..1]).is_none());
}

#[test]
fn ports_that_cannot_be_used_are_a_warning_where_tcp_is_what_remains() {
    let down = with_ports(&[port("rxe0:1", "1: DOWN", true)]);
    let tcp = Expected {
        asked: Expect::Auto,
        class: Some(Class::Tcp),
        why: "two hosts".to_owned(),
        ranks: Vec::new(),
    };
    let found = unusable_ports(&tcp, &down, &healthy());
    assert_eq!(found.len(), 1);
    assert!(found[0].evidence[0].contains("rxe0:1 is 1: DOWN"));
    assert!(unusable_ports(&rdma(), &down, &down).is_empty());
}

#[test]
fn a_silenced_log_is_named_where_the_class_is_unknown() {
    let (none, given) = (Ability::default(), BTreeMap::from([("UCX_PROTO_INFO".to_owned(), "n".to_owned())]));
    let setting =
        Setting { initiator: &none, target: &none, given: &given, logged: &[], op: Op::Read, gpu: None };
    let finding = unproven("x", &carried(Class::Unknown, None, &[]), &setting);
    assert!(finding.next_step.contains("UCX_PROTO_INFO"));
    assert_eq!(finding.status, Status::Unknown);
}

#[test]
fn a_read_between_gpus_without_nvlink_needs_a_switch_of_ucx() {
    let gpu = |links_up| crate::proof::gpu::GpuMeans { links_up, ..Default::default() };
    let none = Ability::default();
    let told = |op: Op, links_up: Option<u32>, given: &[(&str, &str)]| {
        let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let gpu = gpu(links_up);
        let setting =
            Setting { initiator: &none, target: &none, given: &given, logged: &[], op, gpu: Some(&gpu) };
        let expected = Expected {
            asked: Expect::Auto,
            class: Some(Class::PcieP2p),
            why: "two GPUs".to_owned(),
            ranks: Vec::new(),
        };
        explain(
            "READ+WRITE 4 KiB x1, rank 1",
            &expected,
            &carried(Class::Emulated, Some(Class::Tcp), &[]),
            &setting,
        )
    };
    let finding = told(Op::Read, Some(0), &[]);
    assert!(finding.title.contains("does not READ between GPUs without NVLink"), "{}", finding.title);
    assert!(finding.next_step.contains("UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on"), "{}", finding.next_step);
    let switch = "UCX_CUDA_IPC_ENABLE_GET_ZCOPY";
    for (op, links, given) in
        [(Op::Write, Some(0), &[][..]), (Op::Read, Some(4), &[]), (Op::Read, Some(0), &[(switch, "on")])]
    {
        let finding = told(op, links, given);
        assert!(finding.title.contains("cause was not found"), "{op}: {}", finding.title);
    }
    assert!(told(Op::Read, Some(0), &[("UCX_TLS", "tcp,cuda_copy")]).title.contains("leaves cuda_ipc out"));
}

#[test]
fn an_older_ucx_takes_two_processes_of_one_id_for_one() {
    let side = |version: &str, process| Ability {
        ucx_version: Some(version.to_owned()),
        processes: vec![process],
        ..Ability::default()
    };
    let given = BTreeMap::new();
    let told = |initiator: &Ability, target: &Ability, class| {
        let setting = Setting { initiator, target, given: &given, logged: &[], op: Op::Write, gpu: None };
        let expected = Expected { class: Some(class), ..rdma() };
        explain("x", &expected, &carried(Class::Tcp, None, &[]), &setting).title
    };
    let old = side("1.20.0", 12);
    let title = told(&old, &old, Class::Nvlink);
    assert!(title.contains("UCX 1.20.0 takes the two engines for one process"), "{title}");
    let (other, newer) = (side("1.20.0", 13), side("1.21.0", 12));
    for (initiator, target, class) in
        [(&old, &other, Class::Nvlink), (&newer, &newer, Class::Nvlink), (&old, &old, Class::Shm)]
    {
        let title = told(initiator, target, class);
        assert!(!title.contains("for one process"), "{title}");
    }
}

#[test]
fn nvlink_between_hosts_that_is_switched_off_is_named() {
    let none = Ability::default();
    let told = |by_fabric_handle, value: &str| {
        let given = BTreeMap::from([("UCX_CUDA_IPC_ENABLE_MNNVL".to_owned(), value.to_owned())]);
        let gpu = crate::proof::gpu::GpuMeans { by_fabric_handle, links_up: Some(18), ..Default::default() };
        let setting = Setting {
            initiator: &none,
            target: &none,
            given: &given,
            logged: &[],
            op: Op::Write,
            gpu: Some(&gpu),
        };
        let expected = Expected { class: Some(Class::Nvlink), ..rdma() };
        explain("x", &expected, &carried(Class::Rdma, None, &[]), &setting).title
    };
    assert!(told(true, "n").contains("UCX_CUDA_IPC_ENABLE_MNNVL=n keeps"), "{}", told(true, "n"));
    assert!(
        told(true, "y").contains("cause was not found") && told(false, "n").contains("cause was not found")
    );
}

#[test]
fn gpu_memory_that_rdma_only_reaches_through_the_host_is_gpudirect_that_is_missing() {
    let side = |peer_memory: Option<&str>| Ability {
        gpus: vec![Some(crate::proof::gpu::GpuMeans::default())],
        peer_memory: peer_memory.map(str::to_owned),
        ..healthy()
    };
    let told = |class, over, ability: &Ability, given: &[(&str, &str)]| {
        let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let setting = Setting {
            initiator: ability,
            target: ability,
            given: &given,
            logged: &[],
            op: Op::Read,
            gpu: None,
        };
        explain("READ 4 KiB x1", &rdma(), &carried(class, over, &[]), &setting)
    };
    let (bare, emulated) = (side(None), (Class::Emulated, Some(Class::Rdma)));
    let finding = told(emulated.0, emulated.1, &bare, &[("UCX_NET_DEVICES", "mlx5_0:1,eth0")]);
    assert!(finding.title.contains("no GPUDirect RDMA"), "{}", finding.title);
    assert!(finding.evidence.iter().any(|e| e.contains("/sys/module/nvidia_peermem/version")), "{finding:?}");
    let off = told(emulated.0, emulated.1, &side(Some("/sys/x")), &[("UCX_IB_GPU_DIRECT_RDMA", "no")]);
    assert!(off.next_step.contains("take UCX_IB_GPU_DIRECT_RDMA out"), "{off:?}");
    for (class, over, ability) in
        [(Class::Tcp, None, &bare), (Class::Emulated, Some(Class::Rdma), &healthy())]
    {
        assert!(!told(class, over, ability, &[]).title.contains("GPUDirect"), "{class:?}");
    }
}

#[test]
fn network_interfaces_in_the_list_of_devices_are_no_rails() {
    let (ability, given) = (healthy(), [("UCX_NET_DEVICES".to_owned(), "mlx5_0:1,eth0".to_owned())].into());
    let setting = Setting {
        initiator: &ability,
        target: &ability,
        given: &given,
        logged: &[],
        op: Op::Read,
        gpu: None,
    };
    let one = carried(Class::Rdma, None, &[("mlx5_0:1", 100.0)]);
    assert!(rails("x", &one, None, &setting).is_none());
    let given = [("UCX_NET_DEVICES".to_owned(), "mlx5_0,mlx5_1:1".to_owned())].into();
    let setting = Setting { given: &given, ..setting };
    assert!(rails("x", &one, None, &setting).is_some());
}
