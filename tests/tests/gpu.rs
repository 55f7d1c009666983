//! GPU memory end to end, with fake drivers below the real binary: the fake NIXL moves real bytes between what the fake
//! CUDA takes for GPUs, and the fake NVML counts them on scripted links.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Gpus, Kvwire, Nixl, gpus, pair, partial_fake, with_result};
use serde_json::Value;

const TWO: &str = "gpu pci=0000:17:00.0 links=4\ngpu pci=0000:65:00.0 links=4\n";

/// A short run over the fake NIXL that expects what the GPUs could do.
fn run(gpus: &Gpus) -> Kvwire {
    pair().nixl(&Nixl::Fake).gpus(gpus).args([
        "--sizes",
        "256KiB,1MiB",
        "--samples",
        "40",
        "--warmup",
        "5",
        "--case-time",
        "5s",
    ])
}

fn vram(gpus: &Gpus) -> Kvwire {
    run(gpus).args(["--memory", "vram"])
}

fn first_line(ended: &Ended) -> String {
    ended.stdout.lines().take_while(|line| !line.starts_with("  ")).collect::<Vec<_>>().join(" ")
}

#[test]
fn two_gpus_are_proven_to_talk_over_nvlink_by_the_counters_of_every_link() {
    let ended = vram(&gpus(TWO).lane("cuda_ipc/cuda")).run();
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(ended.result()["expectation"]["class"], "nvlink", "{ended}");
    assert_eq!(ended.statuses(), ["pass"; 4], "{ended}");
    for case in ended.cases() {
        let transport = &case["transport"];
        assert_eq!(
            (&transport["class"], transport["doubt"].is_null()),
            (&"nvlink".into(), true),
            "{transport}"
        );
        let devices: Vec<_> = transport["devices"].as_array().unwrap().iter().map(|d| &d["device"]).collect();
        assert_eq!(
            devices,
            ["GPU-66616b65-0000-0000-0000-000000000000", "GPU-66616b65-0000-0000-0000-000000000001"],
            "{transport}"
        );
        let evidence = transport["evidence"].to_string();
        for link in 0..4 {
            assert!(evidence.contains(&format!("000000000000 link {link}:")), "{evidence}");
            assert!(evidence.contains(&format!("000000000001 link {link}:")), "{evidence}");
        }
        assert!(case["limit"]["source"].as_str().unwrap().contains("4 NVLinks of 26.562 GB/s"), "{case}");
        assert_eq!(case["limit"]["bytes_per_s"], 106_248_000_000.0, "{case}");
        assert!(case["verification"]["per_transfer_checks"].as_u64().unwrap() > 0, "{case}");
    }
    assert!(first_line(&ended).contains("carried by nvlink"), "{ended}");
    let placement = &ended.result()["placement"];
    assert_eq!(placement["initiator"][0]["gpu"]["pci"], "0000:17:00.0", "{ended}");
    assert_eq!(placement["target"][0]["gpu"]["pci"], "0000:65:00.0", "{ended}");
    assert!(placement["initiator"][0]["gpu"]["without_kernels"].is_null(), "the kernels were used: {ended}");
    for side in ["initiator", "target"] {
        let gpu = &placement[side][0]["gpu"];
        for figure in ["from_host_bytes_per_s", "to_host_bytes_per_s"] {
            assert!(gpu[figure].as_u64().unwrap() > 0, "{figure}: {ended}");
        }
        assert_eq!(gpu["pcie_bytes_per_s"], 63_015_384_615_u64, "{ended}");
    }
    assert!(ended.stdout.contains("copies from host "), "{ended}");
    assert_eq!(ended.result()["memory"]["target"], "GPU memory (malloc)");
    assert!(ended.result()["verdict"]["scope"].as_str().unwrap().contains("GPU memory (malloc)"), "{ended}");
}

#[test]
fn the_same_lanes_over_pcie_are_pcie_and_below_what_nvlink_could_do() {
    let pcie = vram(&gpus(&format!("wire pcie\n{TWO}")).lane("cuda_ipc/cuda")).run();
    assert_eq!(pcie.code, 1, "{pcie}");
    assert!(first_line(&pcie).contains("expected nvlink, but pcie-p2p"), "{pcie}");
    let bare = "wire pcie\ngpu pci=0000:17:00.0 pcie=4x16\ngpu pci=0000:65:00.0\n";
    let ended = vram(&gpus(bare).lane("cuda_ipc/cuda")).run();
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(ended.cases()[0]["transport"]["class"], "pcie-p2p", "{ended}");
    assert!(
        ended.cases()[0]["limit"]["source"].as_str().unwrap().contains("PCIe generation 4 x16"),
        "{ended}"
    );
    assert!(ended.finding("efficiency-low")["evidence"].to_string().contains("PCIe generation 4"), "{ended}");
}

#[test]
fn where_the_driver_does_not_count_pcie_its_rates_are_sampled_while_the_loop_runs() {
    let two =
        |more: &str| format!("wire pcie\ngpu pci=0000:17:00.0 {more}\ngpu pci=0000:65:00.0 pcie_counted=0\n");
    let long = |script: &str| {
        let args = ["--sizes", "256KiB", "--samples", "100000000", "--case-time", "2s", "--memory", "vram"];
        pair().nixl(&Nixl::Fake).gpus(&gpus(script).lane("cuda_ipc/cuda")).args(args).run()
    };
    let sampled = long(&two("pcie_counted=0"));
    assert_eq!(sampled.code, 0, "{sampled}");
    for case in sampled.cases() {
        let transport = &case["transport"];
        assert_eq!((&transport["class"], &transport["doubt"]), (&"pcie-p2p".into(), &Value::Null), "{case}");
        let rates: Vec<&Value> = transport["evidence"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|evidence| evidence["source"] == "sampled_rates")
            .collect();
        assert_eq!(rates.len(), 2, "one for each side: {case}");
        assert!(rates.iter().all(|e| e["text"].as_str().unwrap().contains("windows of 20 ms")), "{case}");
        assert!(transport["devices"].as_array().unwrap().iter().all(|d| d["bytes"].is_null()), "{case}");
    }
    // One side counts, the other is sampled.
    let mixed = long(&two("pcie_counted=1"));
    assert_eq!(mixed.cases()[0]["transport"]["class"], "pcie-p2p", "{mixed}");
    // A driver that does neither leaves it unproven.
    let neither = long(
        "wire pcie\ngpu pci=0000:17:00.0 pcie_counted=0 pcie_sampled=0\ngpu pci=0000:65:00.0 pcie_counted=0 pcie_sampled=0\n",
    );
    assert_eq!(neither.code, 3, "{neither}");
    let doubt = neither.cases()[0]["transport"]["doubt"].as_str().unwrap();
    assert!(doubt.contains("nothing counts what it carries"), "{neither}");
}

#[test]
fn a_lane_that_is_listed_and_not_used_proves_nothing() {
    let ended = vram(&gpus(&format!("wire none\n{TWO}")).lane("cuda_ipc/cuda")).run();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.cases()[0]["transport"]["doubt"].as_str().unwrap().contains("cuda_ipc/cuda"), "{ended}");
    // A driver that does not answer leaves nothing to count either.
    let script = format!("{TWO}fault nvmlDeviceGetFieldValues=999\n");
    let mute = vram(&gpus(&script).lane("cuda_ipc/cuda")).run();
    assert_eq!(mute.code, 3, "{mute}");
}

#[test]
fn the_memory_of_one_gpu_is_shared_without_any_link() {
    let ended = vram(&gpus(TWO).lane("cuda_ipc/cuda")).args(["--gpu", "1"]).run();
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(ended.cases()[0]["transport"]["class"], "shm", "{ended}");
    assert_eq!(ended.result()["placement"]["initiator"][0]["gpu"]["pci"], "0000:65:00.0", "{ended}");
    assert!(
        ended.cases()[0]["limit"]["source"].as_str().unwrap().contains("within the GPU's memory"),
        "{ended}"
    );
}

#[test]
fn all_four_pairs_of_memory_move_and_check_every_byte() {
    for (initiator, target) in [("dram", "dram"), ("vram", "dram"), ("dram", "vram"), ("vram", "vram")] {
        let ended = run(&gpus(TWO))
            .args(["--initiator-memory", initiator, "--target-memory", target, "--expect", "any"])
            .args(["--batch", "3", "--depth", "2"])
            .run();
        assert_eq!(ended.code, 0, "{initiator} {target}: {ended}");
        assert_eq!(ended.statuses(), ["pass"; 4], "{initiator} {target}: {ended}");
        let words = |kind| if kind == "vram" { "GPU memory (malloc)" } else { "host memory" };
        assert_eq!(ended.result()["memory"]["initiator"], words(initiator));
        assert_eq!(ended.result()["memory"]["target"], words(target));
        let told = ended.result()["findings"].as_array().unwrap().iter().any(|f| f["id"] == "memory-differs");
        assert_eq!(told, initiator != target, "{ended}");
    }
}

#[test]
fn every_kind_of_allocation_says_what_it_can_be_exported_as() {
    for (alloc, means) in
        [("malloc", "legacy IPC handle"), ("vmm", "file descriptor"), ("fabric", "fabric handle")]
    {
        let ended = vram(&gpus(TWO)).args(["--alloc", alloc, "--expect", "any"]).run();
        assert_eq!(ended.code, 0, "{alloc}: {ended}");
        let gpu = &ended.result()["placement"]["target"][0]["gpu"];
        assert_eq!((&gpu["alloc"], &gpu["process_export_means"]), (&alloc.into(), &means.into()), "{ended}");
        assert_eq!((&gpu["dma_buf"], &gpu["process_export"]), (&"yes".into(), &"yes".into()), "{ended}");
    }
    let poor =
        gpus("gpu pci=0000:17:00.0\nfault cuMemGetHandleForAddressRange=801\nfault cuIpcGetMemHandle=801\n");
    let ended = vram(&poor).args(["--expect", "any"]).run();
    assert!(ended.title("gpu-memory-not-exportable").contains("NVLink cannot reach it"), "{ended}");
    let gpu = &ended.result()["placement"]["target"][0]["gpu"];
    assert!(gpu["dma_buf"].as_str().unwrap().contains("CUDA_ERROR_NOT_SUPPORTED"), "{ended}");
    for (script, alloc, words) in [
        ("gpu vmm=0\n", "vmm", "no virtual memory management"),
        ("gpu fabric=0\n", "fabric", "no fabric handles"),
        ("gpu\nfault cuMemCreate=800\n", "fabric", "CUDA_ERROR_NOT_PERMITTED"),
    ] {
        let ended = vram(&gpus(script)).args(["--alloc", alloc]).run();
        assert_eq!(ended.code, 3, "{ended}");
        assert!(ended.title("gpu-unusable").contains(words), "{words}: {ended}");
    }
}

#[test]
fn damage_in_gpu_memory_gets_the_diagnosis_that_it_gets_in_host_memory() {
    for (fault, words) in [
        ("corrupt=12345", "bit"),
        ("swap", "right data in the wrong place"),
        ("short", "were never written"),
        ("stale", "old data"),
        ("drop", "never written"),
    ] {
        for op in ["read", "write"] {
            let gpus = gpus(TWO);
            let spoiled = |run: Kvwire| {
                let args =
                    ["--sizes", "64KiB", "--op", op, "--warmup", "0", "--samples", "5", "--case-time", "5s"];
                run.fake(fault).args(args).run()
            };
            let (on_gpu, on_host) = (
                spoiled(pair().gpus(&gpus).args(["--memory", "vram", "--seed", "7"])),
                spoiled(pair().args(["--seed", "7"])),
            );
            assert_eq!((on_gpu.code, on_host.code), (1, 1), "{fault} {op}: {on_gpu}");
            let found = |ended: &Ended| ended.cases()[0]["verification"]["mismatch"].clone();
            assert!(on_gpu.title("data-mismatch").contains(words), "{fault} {op}: {on_gpu}");
            assert_eq!(found(&on_gpu)["looks_like"], found(&on_host)["looks_like"], "{fault} {op}: {on_gpu}");
            assert_eq!(
                found(&on_gpu)["byte_offset"],
                found(&on_host)["byte_offset"],
                "{fault} {op}: {on_gpu}"
            );
        }
    }
}

#[test]
fn without_kernels_the_data_is_checked_through_a_copy_and_that_is_said() {
    for (code, name) in [("218", "INVALID_PTX"), ("209", "209")] {
        let script = format!("{TWO}fault cuModuleLoadData={code}\n");
        let ended = vram(&gpus(&script).lane("cuda_ipc/cuda")).run();
        assert_eq!(ended.code, 0, "{ended}");
        assert!(ended.finding("gpu-kernels-unused")["evidence"].to_string().contains(name), "{ended}");
        let bad = pair()
            .gpus(&gpus(&script))
            .fake("corrupt=4097")
            .args(["--memory", "vram", "--sizes", "64KiB", "--op", "read", "--samples", "5"])
            .run();
        assert!(bad.title("data-mismatch").contains("bit"), "{bad}");
    }
    // A launch that fails in the trial is a kernel that is not used.
    let ended = vram(&gpus(&format!("{TWO}fault cuLaunchKernel=719\n")).lane("cuda_ipc/cuda")).run();
    assert!(ended.finding("gpu-kernels-unused")["evidence"].to_string().contains("LAUNCH_FAILED"), "{ended}");
}

#[test]
fn a_missing_or_broken_driver_is_refused_with_what_was_looked_for() {
    let bare = pair().nixl(&Nixl::Fake).args(["--memory", "vram", "--expect", "any"]).run();
    assert_eq!(bare.code, 3, "{bare}");
    let title = bare.title("gpu-missing");
    assert!(
        title.contains("libcuda.so.1: cannot open shared object file")
            && title.contains("/proc/driver/nvidia/version is not there"),
        "{bare}"
    );
    let old = pair()
        .nixl(&Nixl::Fake)
        .env("KVWIRE_CUDA_LIB", &partial_fake().display().to_string())
        .args(["--memory", "vram", "--expect", "any"])
        .run();
    assert!(old.title("gpu-missing").contains("has no `cuInit`"), "{old}");
    for (script, words) in [
        ("fault cuInit=34\ngpu\n", "stub"),
        ("fault cuInit=803\ngpu\n", "different versions"),
        ("fault cuDeviceGetCount=800\ngpu\n", "NOT_PERMITTED"),
        ("driver 11040\ngpu\n", "CUDA 11.4"),
        ("", "CUDA_VISIBLE_DEVICES"),
    ] {
        let ended = vram(&gpus(script)).run();
        assert_eq!(ended.code, 3, "{words}: {ended}");
        assert!(ended.title("gpu-missing").contains(words), "{words}: {ended}");
    }
    let wrong = vram(&gpus(TWO)).args(["--gpu", "5"]).run();
    assert!(wrong.title("gpu-missing").contains("no GPU of this side is `5`; there are: GPU 0"), "{wrong}");
}

#[test]
fn a_driver_that_locks_no_host_memory_leaves_the_copies_unmeasured() {
    let script = format!("{TWO}fault cuMemAllocHost_v2=801\n");
    let ended = vram(&gpus(&script).lane("cuda_ipc/cuda")).run();
    assert_eq!(ended.code, 0, "{ended}");
    let gpu = &ended.result()["placement"]["target"][0]["gpu"];
    assert!(gpu["from_host_bytes_per_s"].is_null() && gpu["pcie_bytes_per_s"].is_u64(), "{ended}");
    assert!(!ended.stdout.contains("copies from host "), "{ended}");
}

#[test]
fn a_gpu_that_is_full_or_lost_ends_the_run_with_its_reason() {
    let full = vram(&gpus("gpu memory=1048576\n")).run();
    assert_eq!(full.code, 3, "{full}");
    assert!(full.title("gpu-unusable").contains("CUDA_ERROR_OUT_OF_MEMORY"), "{full}");
    // By then the engine has its memory, and fills it.
    let lost =
        vram(&gpus(&format!("{TWO}fault cuLaunchKernel=719@after=9\n"))).args(["--expect", "any"]).run();
    assert_ne!(lost.code, 0, "{lost}");
    assert!(lost.title("gpu-unusable").contains("Xid"), "{lost}");
}

#[test]
fn what_a_card_wrote_is_flushed_before_the_check_on_gpus_that_do_not_order_it() {
    let unordered = TWO.replace("links=4", "links=4 ordered=0");
    let ended = vram(&gpus(&unordered).lane("cuda_ipc/cuda")).run();
    assert_eq!(ended.code, 0, "{ended}");
    let refused = "fault cuFlushGPUDirectRDMAWrites=719\n";
    let broken = vram(&gpus(&format!("{unordered}{refused}"))).args(["--expect", "any"]).run();
    assert_ne!(broken.code, 0, "{broken}");
    assert!(broken.result()["findings"].to_string().contains("cuFlushGPUDirectRDMAWrites"), "{broken}");
    let ordered = vram(&gpus(&format!("{TWO}{refused}"))).args(["--expect", "any"]).run();
    assert_eq!(ordered.code, 0, "nothing is flushed in vain: {ordered}");
}

#[test]
fn auto_takes_the_gpu_or_says_loudly_that_it_did_not() {
    let with = run(&gpus(TWO).lane("cuda_ipc/cuda")).args(["--memory", "auto"]).run();
    assert_eq!(with.result()["memory"]["initiator"], "GPU memory (malloc)", "{with}");
    let without = pair()
        .nixl(&Nixl::Newest)
        .args(["--memory", "auto", "--sizes", "64KiB", "--case-time", "50ms"])
        .run();
    assert_eq!(without.code, 0, "{without}");
    let line = first_line(&without);
    assert!(
        line.starts_with("TRUSTED") && line.contains("IN HOST MEMORY since no GPU could be used"),
        "{line}"
    );
    assert!(
        without.result()["verdict"]["scope"].as_str().unwrap().contains("because no GPU could be used"),
        "{without}"
    );
    assert!(without.finding("memory-fallback")["evidence"].to_string().contains("libcuda.so.1"), "{without}");
}

#[test]
fn an_instance_of_a_divided_gpu_is_used_and_expects_no_nvlink() {
    let mig = "gpu pci=0000:17:00.0 mig=1\ngpu pci=0000:65:00.0 mig=1\n";
    let ended = vram(&gpus(mig)).args(["--expect", "any"]).run();
    assert_eq!(ended.code, 0, "{ended}");
    let uuid = ended.result()["placement"]["initiator"][0]["gpu"]["uuid"].as_str().unwrap().to_owned();
    assert!(uuid.starts_with("MIG-"), "{ended}");
    assert!(ended.title("cuda-ipc-impossible").contains("MIG"), "{ended}");
    let by_name = vram(&gpus(mig)).args(["--expect", "any", "--gpu", &uuid]).run();
    assert_eq!(by_name.code, 0, "{by_name}");
}

#[test]
fn kv_blocks_move_between_gpus_too() {
    let ended = vram(&gpus(TWO).lane("cuda_ipc/cuda"))
        .args([
            "--model",
            "llama-3.1-8b",
            "--tokens",
            "256",
            "--layout",
            "vllm",
            "--prefill-tp",
            "8",
            "--no-descriptor-sweep",
            "--decode-tp",
            "8",
        ])
        .run();
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.cases().iter().any(|case| case["shape"] == "paged"), "{ended}");
    assert!(ended.cases().iter().all(|case| case["transport"]["class"] == "nvlink"), "{ended}");
}

#[test]
fn what_a_path_must_reach_fails_the_run_only_when_asked() {
    let gpus = gpus(TWO).lane("cuda_ipc/cuda");
    let warned = vram(&gpus).run();
    assert_eq!(warned.code, 0, "{warned}");
    assert_eq!(warned.finding("efficiency-low")["status"], "warn", "{warned}");
    assert!(warned.stdout.contains("% of 106.248 GB/s"), "{warned}");
    let failed = vram(&gpus).args(["--min-efficiency", "100"]).run();
    assert_eq!(failed.code, 1, "{failed}");
    assert_eq!(failed.finding("efficiency-low")["status"], "fail", "{failed}");
    assert_eq!(vram(&gpus).args(["--min-efficiency", "0"]).run().code, 0);
}

#[test]
fn the_node_check_reads_the_links_of_the_gpus() {
    let gpus = gpus("gpu links=4 links_down=1\n");
    let ended = kvwire_tests::kvwire_command("check").args(["node", "--json"]).gpus(&gpus).run();
    assert!(ended.stdout.contains("1 of 4 NVLinks are down"), "{ended}");
    let nowhere = kvwire_tests::kvwire_command("check")
        .args(["node", "--json"])
        .env("KVWIRE_NVML_LIB", "/no/such.so")
        .run();
    assert!(nowhere.stdout.contains("/no/such.so: cannot open shared object file"), "{nowhere}");
    let domain = kvwire_tests::gpus("gpu links=4 domain=1\n");
    let ended = kvwire_tests::kvwire_command("check").args(["node", "--json"]).gpus(&domain).run();
    assert!(ended.stdout.contains("state completed, status 0, clique 1"), "{ended}");
}

#[test]
fn an_engine_is_pinned_to_the_node_that_is_asked_for_and_says_where_its_memory_lies() {
    if !std::path::Path::new("/sys/devices/system/node/node0/cpulist").exists() {
        eprintln!("skipped: this kernel shows no NUMA node");
        return;
    }
    let run = |node: &str| pair().fake("").args(["--sizes", "64KiB", "--samples", "5", "--numa", node]).run();
    let (pinned, free) = (run("0"), run("off"));
    assert_eq!((pinned.code, free.code), (0, 0), "{pinned}");
    assert!(
        pinned.result()["placement"]["target"][0]["cpus"].as_str().is_some_and(|cpus| cpus.starts_with('0')),
        "{pinned}"
    );
    assert_eq!(pinned.result()["placement"]["target"][0]["numa_node"], 0, "{pinned}");
    assert!(free.result()["placement"]["target"][0]["cpus"].is_null(), "{free}");
}

#[test]
fn huge_pages_that_were_not_set_aside_are_refused_with_the_setting() {
    let free = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    let ended = pair().fake("").args(["--sizes", "64KiB", "--samples", "5", "--huge-pages"]).run();
    if free.trim() == "0" {
        assert_eq!(ended.code, 3, "{ended}");
        assert!(ended.title("memory").contains("vm.nr_hugepages"), "{ended}");
    } else {
        assert_eq!(ended.result()["memory"]["target"], "host memory in huge pages", "{ended}");
    }
}

#[test]
fn ports_that_are_named_are_what_ucx_is_told() {
    let ended = pair()
        .nixl(&Nixl::Newest)
        .args(["--sizes", "64KiB", "--case-time", "50ms", "--nics", "lo,mlx5_9:1", "--expect", "any"])
        .run();
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(ended.result()["placement"]["initiator"][0]["nics"][1], "mlx5_9:1", "{ended}");
    assert!(ended.finding("ucx-device-missing")["evidence"].to_string().contains("mlx5_9:1"), "{ended}");
}

#[test]
fn each_rank_has_a_gpu_of_its_own_and_its_bytes_are_proven_on_the_links_of_that_gpu() {
    let four: String =
        (1..5).map(|bus| format!("gpu pci=0000:{bus}7:00.0 links=4\n")).collect::<Vec<_>>().concat();
    let ended = vram(&gpus(&four).lane("cuda_ipc/cuda")).args(["--ranks", "2", "--verbose"]).run();
    assert_eq!(ended.code, 0, "{ended}");
    let gpu = |number: u32| format!("GPU-66616b65-0000-0000-0000-00000000000{number}");
    let placement = &ended.result()["placement"];
    for (side, first) in [("initiator", 0), ("target", 2)] {
        for rank in 0..2 {
            assert_eq!(placement[side][rank as usize]["gpu"]["uuid"], gpu(first + rank), "{ended}");
        }
    }
    for case in ended.cases() {
        // Four links on each of a side's two GPUs.
        assert_eq!(case["limit"]["bytes_per_s"], 2.0 * 106_248_000_000.0, "{case}");
        let parts = case["parts"].as_array().unwrap();
        assert_eq!(parts.len(), 2, "{case}");
        for (rank, part) in (0..).zip(parts) {
            assert_eq!(
                (&part["gpu"], &part["target_gpu"]),
                (&gpu(rank).into(), &gpu(rank + 2).into()),
                "{part}"
            );
            assert!(part["bandwidth_bytes_per_s"].as_f64().unwrap() > 0.0, "{part}");
            let transport = &part["transport"];
            assert_eq!(
                (&transport["class"], transport["doubt"].is_null()),
                (&"nvlink".into(), true),
                "{part}"
            );
            let devices: Vec<_> =
                transport["devices"].as_array().unwrap().iter().map(|d| d["device"].clone()).collect();
            assert_eq!(devices, [gpu(rank), gpu(rank + 2)], "{part}");
        }
    }
    assert!(ended.stdout.contains(&format!("{} - {}", gpu(1), gpu(3))), "{ended}");
    assert!(ended.stdout.contains("at 0000:17:00.0 and Fake GPU of the tests"), "{ended}");
}

/// Two ranks on four GPUs with links: GPU 0 to GPU 2, and GPU 1 to GPU 3. Each GPU has more words.
fn two_ranks(words: [&str; 4]) -> Ended {
    let gpu = |(bus, words): (u32, &str)| format!("gpu pci=0000:{bus}7:00.0 links=4 {words}\n");
    let script: String = (1..).zip(words).map(gpu).collect::<Vec<_>>().concat();
    vram(&gpus(&script).lane("cuda_ipc/cuda")).args(["--ranks", "2"]).run()
}

/// A word of each part of a case, by a path below `transport`.
fn of_parts(case: &serde_json::Value, path: &str) -> Vec<serde_json::Value> {
    case["parts"].as_array().unwrap().iter().map(|part| part["transport"][path].clone()).collect()
}

#[test]
fn ranks_whose_gpus_can_do_different_things_are_each_held_to_their_own() {
    for (down, classes) in [(0, ["pcie-p2p", "nvlink"]), (3, ["nvlink", "pcie-p2p"])] {
        let mut words = [""; 4];
        words[down] = "links_down=4";
        let ended = two_ranks(words);
        assert_eq!(ended.code, 0, "{ended}");
        let expectation = &ended.result()["expectation"];
        assert_eq!(expectation["class"], "pcie-p2p", "{expectation}");
        let weak = classes.iter().position(|class| *class == "pcie-p2p").unwrap();
        let why = expectation["why"].as_str().unwrap();
        assert!(why.contains(&format!("that of rank {weak}:")), "{why}");
        assert!(why.contains(&format!("held to more: rank {} to nvlink", 1 - weak)), "{why}");
        let ranks = expectation["ranks"].as_array().unwrap();
        assert_eq!(ranks.iter().map(|one| &one["class"]).collect::<Vec<_>>(), classes, "{expectation}");
        for case in ended.cases() {
            assert_eq!(of_parts(case, "class"), classes, "{case}");
            assert_eq!(of_parts(case, "meets_expectation"), [true, true], "{case}");
            assert_eq!(case["transport"]["class"], "pcie-p2p", "the weakest is that of the case: {case}");
            let limits =
                case["parts"].as_array().unwrap().iter().map(|part| part["limit"]["source"].to_string());
            let source = |class| if class == "nvlink" { "NVLinks" } else { "PCIe generation 5" };
            assert!(limits.zip(classes).all(|(limit, class)| limit.contains(source(class))), "{case}");
        }
    }
}

#[test]
fn one_rank_that_takes_less_than_its_gpus_could_fails_the_run_and_is_named() {
    for (slow, rank) in [(1, 1), (2, 0)] {
        let mut words = [""; 4];
        words[slow] = "nvlink=0";
        let ended = two_ranks(words);
        assert_eq!(ended.code, 1, "{ended}");
        assert!(first_line(&ended).contains("expected nvlink, but pcie-p2p"), "{ended}");
        let evidence = ended.finding("transport-below-expected")["evidence"].to_string();
        assert!(evidence.contains(&format!("x1, rank {rank}\"")), "{evidence}");
        assert!(!evidence.contains(&format!("x1, rank {}\"", 1 - rank)), "{evidence}");
        let met = of_parts(&ended.cases()[0], "meets_expectation");
        assert_eq!(met, [rank != 0, rank != 1], "{ended}");
    }
}

#[test]
fn an_instance_among_whole_gpus_is_told_before_anything_moves_with_its_rank() {
    for (instance, rank) in [(0, 0), (3, 1)] {
        let mut words = [""; 4];
        words[instance] = "mig=1";
        let ended = two_ranks(words);
        let impossible = ended.finding("cuda-ipc-impossible");
        let title = impossible["title"].as_str().unwrap();
        assert!(
            title.contains(&format!("the GPUs of rank {rank} cannot be used: a GPU instance (MIG)")),
            "{title}"
        );
        let evidence = impossible["evidence"].to_string();
        assert!(
            evidence.contains("MIG-") && evidence.contains(&format!("target rank {rank}: ")),
            "{evidence}"
        );
        assert!(!evidence.contains(&format!("rank {}: ", 1 - rank)), "{evidence}");
        let expectation = &ended.result()["expectation"];
        assert_eq!(expectation["class"], "tcp", "{expectation}");
        assert_eq!(expectation["ranks"][1 - rank]["class"], "nvlink", "{expectation}");
        // What carries the bytes of the instance is nothing that is counted here; the other rank is proven all the same.
        assert_eq!(ended.code, 3, "{ended}");
        let case = &ended.cases()[0];
        assert_eq!(of_parts(case, "class")[1 - rank], "nvlink", "{case}");
        assert_eq!(of_parts(case, "class")[rank], "unknown", "{case}");
    }
}

#[test]
fn several_ranks_take_turns_on_few_gpus_and_both_directions_have_memory_of_their_own() {
    for args in [["--ranks", "3", "--alloc", "malloc"], ["--ranks", "1", "--bidirectional", "--verbose"]] {
        let ended = vram(&gpus(TWO).lane("cuda_ipc/cuda")).args(args).run();
        assert_eq!(ended.code, 0, "{ended}");
        assert!(ended.statuses().iter().all(|status| *status == "pass"), "{ended}");
        assert!(ended.cases().iter().all(|case| case["parts"].as_array().unwrap().len() > 1), "{ended}");
    }
}

#[test]
fn check_nixl_registers_memory_of_a_gpu_where_there_is_one() {
    let check = || kvwire_tests::kvwire_command("check").args(["nixl", "--json"]).nixl(&Nixl::Fake);
    let status = |ended: &Ended| {
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let found = report["checks"].as_array().unwrap().iter();
        found.filter(|f| f["name"] == "nixl-gpu-memory").map(|f| f["status"].clone()).collect::<Vec<_>>()
    };
    let with = check().gpus(&gpus(TWO)).run();
    assert_eq!(status(&with), ["ok"], "{with}");
    let without = check().run();
    assert_eq!(status(&without), ["skipped"], "{without}");
}

#[test]
fn info_lists_the_gpus_or_says_why_there_is_none() {
    let info = || kvwire_tests::kvwire_command("info").nixl(&Nixl::Fake);
    let with = info().gpus(&gpus(TWO)).run();
    assert!(with.stdout.contains("GPU 1 (Fake GPU of the tests, 0000:65:00.0, GPU-66616b65"), "{with}");
    let without = info().run();
    assert_eq!(without.code, 0, "{without}");
    assert!(without.stdout.contains("libcuda.so.1 (by the loader)"), "{without}");
}

#[test]
fn gpus_are_taken_in_the_order_that_is_given_and_a_target_may_have_its_own() {
    let gpus = gpus(TWO).lane("cuda_ipc/cuda");
    let pci = |ended: &Ended, side: &str| {
        ended.result()["placement"][side][0]["gpu"]["pci"].as_str().unwrap().to_owned()
    };
    let turned = vram(&gpus).args(["--gpu", "0000:65:00.0,GPU-66616b65-0000-0000-0000-000000000000"]).run();
    assert_eq!(
        (pci(&turned, "initiator"), pci(&turned, "target")),
        ("0000:65:00.0".into(), "0000:17:00.0".into())
    );
    let side = |command: &str, url: &str| {
        let run = with_result(command).nixl(&Nixl::Fake).gpus(&gpus);
        run.args(["--rendezvous", url, "--allow-same-host"])
    };
    let mut target = side("target", "tcp://127.0.0.1:0").args(["--gpu", "1"]).start();
    let address = target.join_address();
    let args = ["--memory", "vram", "--gpu", "0", "--sizes", "64KiB", "--samples", "20", "--case-time", "5s"];
    let initiator = side("initiator", &address).args(args).run();
    assert_eq!((initiator.code, target.end().code), (0, 0), "{initiator}");
    assert_eq!(
        (pci(&initiator, "initiator"), pci(&initiator, "target")),
        ("0000:17:00.0".into(), "0000:65:00.0".into())
    );
    assert!(
        initiator.result()["verdict"]["scope"].as_str().unwrap().contains("GPU memory (malloc)"),
        "{initiator}"
    );
}
