//! GPU memory end to end with the real NIXL and the real UCX: the fake driver below them maps real memory into both
//! processes, so that UCX's own `cuda_copy` and `cuda_ipc` move the bytes, and its own tables say how.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Gpus, Kvwire, Machine, Nixl, gpus, kvwire_command, pair, with_result};

const NVLINK: &str = "gpu pci=0000:17:00.0 links=4\ngpu pci=0000:65:00.0 links=4\n";
const DOMAIN: &str = "gpu pci=0000:17:00.0 links=4 domain=1\ngpu pci=0000:65:00.0 links=4 domain=1\n";
const PCIE: &str = "wire pcie\ngpu pci=0000:17:00.0\ngpu pci=0000:65:00.0\n";

fn run(nixl: &Nixl, gpus: &Gpus) -> Kvwire {
    pair().nixl(nixl).driver(gpus).args([
        "--sizes",
        "64KiB,1MiB",
        "--samples",
        "40",
        "--warmup",
        "5",
        "--case-time",
        "5s",
    ])
}

fn vram(nixl: &Nixl, gpus: &Gpus) -> Kvwire {
    run(nixl, gpus).args(["--memory", "vram"])
}

fn classes(ended: &Ended) -> Vec<String> {
    ended.cases().iter().map(|case| case["transport"]["class"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn ucx_moves_between_two_gpus_over_cuda_ipc_and_its_tables_are_read() {
    for nixl in Nixl::covered() {
        for alloc in ["malloc", "fabric"] {
            let ended = vram(&nixl, &gpus(NVLINK)).args(["--alloc", alloc]).run();
            assert_eq!(ended.code, 0, "{nixl:?} {alloc}: {ended}");
            assert_eq!(classes(&ended), ["nvlink"; 4], "{nixl:?} {alloc}: {ended}");
            for case in ended.cases() {
                let evidence = case["transport"]["evidence"].to_string();
                assert!(evidence.contains("cuda_ipc/cuda"), "{nixl:?} {alloc}: {evidence}");
                assert!(case["verification"]["verified_bytes"].as_u64().unwrap() > 0, "{case}");
            }
            assert_eq!(ended.result()["expectation"]["class"], "nvlink", "{ended}");
        }
    }
}

#[test]
fn one_gpu_shared_by_two_processes_is_shared_memory() {
    let ended = vram(&Nixl::Newest, &gpus("gpu pci=0000:17:00.0 links=4\n")).run();
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(classes(&ended), ["shm"; 4], "{ended}");
}

#[test]
fn an_instance_among_whole_gpus_goes_over_tcp_and_its_rank_alone_is_held_to_no_more() {
    let gpu = |(bus, words): (u32, &str)| format!("gpu pci=0000:{bus}7:00.0 links=4 {words}\n");
    for (instance, rank) in [(0, 0), (3, 1)] {
        let mut words = [""; 4];
        words[instance] = "mig=1";
        let script: String = (1..).zip(words).map(gpu).collect::<Vec<_>>().concat();
        let ended = vram(&Nixl::Newest, &gpus(&script)).args(["--ranks", "2"]).run();
        assert_eq!(ended.code, 0, "{ended}");
        assert!(ended.title("cuda-ipc-impossible").contains(&format!("of rank {rank} cannot")), "{ended}");
        let expectation = &ended.result()["expectation"];
        assert_eq!(expectation["class"], "tcp", "{expectation}");
        for case in ended.cases() {
            let of = |rank: usize| &case["parts"][rank]["transport"];
            assert_eq!(
                (&of(rank)["class"], &of(rank)["over"]),
                (&"emulated".into(), &"tcp".into()),
                "{case}"
            );
            assert_eq!(of(1 - rank)["class"], "nvlink", "{case}");
            assert_eq!(of(1 - rank)["meets_expectation"], true, "{case}");
        }
    }
}

#[test]
fn kv_blocks_cross_between_gpus() {
    let ended = vram(&Nixl::Newest, &gpus(NVLINK))
        .args(["--model", "llama-3.1-8b", "--tokens", "256", "--layout", "vllm", "--no-descriptor-sweep"])
        .args(["--prefill-tp", "8", "--decode-tp", "8"])
        .run();
    assert_eq!(ended.code, 0, "{ended}");
    assert!(classes(&ended).iter().all(|class| class == "nvlink"), "{ended}");
}

#[test]
fn memory_of_both_kinds_goes_through_tcp_on_one_host_and_every_byte_is_right() {
    for (initiator, target) in [("vram", "dram"), ("dram", "vram")] {
        let ended = run(&Nixl::Newest, &gpus(NVLINK))
            .args(["--initiator-memory", initiator, "--target-memory", target])
            .run();
        assert_eq!(ended.code, 0, "{ended}");
        assert_eq!(ended.statuses(), ["pass"; 4], "{ended}");
        assert_eq!(classes(&ended), ["emulated"; 4], "{ended}");
        assert_eq!(ended.result()["expectation"]["class"], "tcp", "{ended}");
    }
}

#[test]
fn a_read_without_nvlink_is_emulated_and_the_switch_that_mends_it_is_named() {
    for nixl in Nixl::covered() {
        let ended = vram(&nixl, &gpus(PCIE)).run();
        assert_eq!(ended.code, 1, "{nixl:?}: {ended}");
        assert_eq!(classes(&ended), ["emulated", "emulated", "pcie-p2p", "pcie-p2p"], "{nixl:?}: {ended}");
        let finding = ended.finding("transport-below-expected");
        let next = finding["next_step"].as_str().unwrap();
        assert!(next.contains("UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on"), "{nixl:?}: {ended}");
        let mended = vram(&nixl, &gpus(PCIE)).args(["--ucx-env", "UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on"]).run();
        assert_eq!(mended.code, 0, "{nixl:?}: {mended}");
        assert_eq!(classes(&mended), ["pcie-p2p"; 4], "{nixl:?}: {mended}");
    }
}

#[test]
fn memory_that_ucx_does_not_export_is_the_cause() {
    for nixl in Nixl::covered() {
        let ended = vram(&nixl, &gpus(NVLINK)).args(["--alloc", "vmm"]).run();
        assert_eq!(ended.code, 1, "{nixl:?}: {ended}");
        let title = ended.title("transport-below-expected");
        assert!(title.contains("does not export memory of cuMemCreate"), "{nixl:?}: {ended}");
    }
}

#[test]
fn as_many_ranks_as_gpus_cross_from_gpu_to_gpu() {
    let ended = vram(&Nixl::Newest, &gpus(NVLINK)).args(["--ranks", "2"]).run();
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(classes(&ended), ["nvlink"; 4], "{ended}");
}

/// An initiator and its target as two containers of one machine, each in a PID namespace of its own.
fn two_containers(nixl: &Nixl, machine: &Machine, alloc: &str) -> (Ended, Ended) {
    let gpus = gpus(DOMAIN);
    let side = |command: &str, url: &str| {
        let run = with_result(command).nixl(nixl).driver(&gpus);
        run.args(["--rendezvous", url, "--allow-same-host"]).on_machine(machine).in_own_pid_namespace()
    };
    let mut target = side("target", "tcp://127.0.0.1:0").start();
    let address = target.join_address();
    let args =
        ["--memory", "vram", "--alloc", alloc, "--sizes", "64KiB", "--samples", "20", "--case-time", "5s"];
    (side("initiator", &address).args(args).run(), target.end())
}

#[test]
fn netns_two_containers_have_no_cuda_ipc() {
    let without_channel = Machine::like_this_one();
    for alloc in ["malloc", "fabric"] {
        let (initiator, target) = two_containers(&Nixl::Newest, &without_channel, alloc);
        assert_eq!((initiator.code, target.code), (0, 0), "{initiator}");
        assert_eq!(classes(&initiator), ["emulated"; 2], "{initiator}");
        assert!(
            initiator.title("cuda-ipc-impossible").contains("different process-id namespaces"),
            "{initiator}"
        );
    }
}

#[test]
fn netns_two_containers_with_fabric_handles_and_a_channel_have_nvlink() {
    let machine = Machine::like_this_one().imex_channel();
    for nixl in Nixl::covered() {
        let (initiator, target) = two_containers(&nixl, &machine, "fabric");
        let result = initiator.result();
        assert_eq!(result["expectation"]["class"], "nvlink", "{nixl:?}: {initiator}");
        // The first processes of both containers start the same ones, so that their engines have one id.
        let mixes_them_up =
            result["nodes"]["initiator"]["nixl"]["ucx_version"].as_str().unwrap().starts_with("1.20.");
        if mixes_them_up {
            let title = initiator.title("transport-below-expected");
            assert!(title.contains("takes the two engines for one process"), "{nixl:?}: {initiator}");
        } else {
            assert_eq!((initiator.code, target.code), (0, 0), "{nixl:?}: {initiator}");
            assert_eq!(classes(&initiator), ["nvlink"; 2], "{nixl:?}: {initiator}");
        }
    }
    let (initiator, _) = two_containers(&Nixl::Newest, &machine, "malloc");
    assert_eq!(classes(&initiator), ["emulated"; 2], "a channel is nothing to legacy handles: {initiator}");
}

#[test]
fn a_list_of_transports_without_cuda_ipc_is_the_cause() {
    let ended = vram(&Nixl::Newest, &gpus(NVLINK)).args(["--ucx-env", "UCX_TLS=tcp,cuda_copy"]).run();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.title("transport-below-expected").contains("leaves cuda_ipc out"), "{ended}");
    let host = vram(&Nixl::Newest, &gpus(NVLINK)).args(["--ucx-env", "UCX_TLS=tcp"]).run();
    assert_eq!(host.code, 1, "{host}");
    assert!(host.stdout.contains("UCX_TLS leaves out GPU memory"), "{host}");
}

#[test]
fn strict_lets_cuda_ipc_pass_and_stops_what_would_be_emulated() {
    let direct = vram(&Nixl::Newest, &gpus(NVLINK)).args(["--strict"]).run();
    assert_eq!(direct.code, 0, "{direct}");
    let emulated = vram(&Nixl::Newest, &gpus(PCIE)).args(["--strict", "--op", "read"]).run();
    assert_eq!(emulated.code, 1, "{emulated}");
    assert!(emulated.stdout.contains("ucx-emulation-refused"), "{emulated}");
}

#[test]
fn without_the_cuda_runtime_ucx_may_know_no_gpu_memory_and_the_runtime_is_what_is_named() {
    // The same wheel without NVIDIA's package beside it, as pip leaves it with --no-deps.
    let wheel = Nixl::Newest.library();
    let site = wheel.parent().unwrap().parent().unwrap();
    let bare = tempfile::tempdir().unwrap();
    for folder in [".nixl_cu12.mesonpy.libs", "nixl_cu12.libs"] {
        std::os::unix::fs::symlink(site.join(folder), bare.path().join(folder)).unwrap();
    }
    let nixl = Nixl::At(bare.path().join(".nixl_cu12.mesonpy.libs/libnixl_capi.so"));
    let ended = vram(&nixl, &gpus(NVLINK)).run();
    // Whether UCX goes wrong depends on the addresses that the memory gets.
    if ended.code != 0 {
        assert!(ended.stdout.contains("NOT TRUSTED"), "{ended}");
        let first = ended.stdout.lines().next().unwrap();
        assert!(first.contains("the CUDA runtime library is not there"), "{ended}");
        assert!(ended.stdout.contains("UCX takes GPU memory for host memory"), "{ended}");
    }
    let evidence = ended.finding("cuda-runtime-missing")["evidence"].to_string();
    assert!(evidence.contains("libcudart.so.12 was not found; searched: libcudart.so.12, "), "{ended}");
    // Host memory does not need it.
    assert_eq!(run(&nixl, &gpus(NVLINK)).run().code, 0);
}

#[test]
fn check_nixl_registers_gpu_memory_with_ucx_and_info_names_the_runtime() {
    let gpus = gpus(NVLINK);
    let check = kvwire_command("check").args(["nixl", "--json"]).nixl(&Nixl::Newest).driver(&gpus).run();
    let report: serde_json::Value = serde_json::from_str(&check.stdout).unwrap();
    let found = report["checks"].as_array().unwrap().iter().find(|f| f["name"] == "nixl-gpu-memory");
    assert_eq!(found.unwrap()["status"], "ok", "{check}");
    let info = kvwire_command("info").nixl(&Nixl::Newest).driver(&gpus).run();
    assert!(info.stdout.contains("UCX memory      host memory, GPU memory"), "{info}");
    assert!(info.stdout.contains("nvidia/cuda_runtime/lib/libcudart.so.12"), "{info}");
}
