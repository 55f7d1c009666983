//! Worked numbers: bytes and descriptors of well-known models, computed by hand from the formulas of the engines.

use std::collections::BTreeSet;
use std::fs;

use by_name::geometry;
use proptest::prelude::*;

use super::config::ConfigError;
use super::rank::Deployment;
use super::shape::Parts;
use super::*;
use crate::plan::Op;

const PROMPTS: [u64; 4] = [1 << 10, 8 << 10, 32 << 10, 128 << 10];
const MIB: f64 = 1048576.0;

mod by_name {
    use super::super::{Geometry, find_preset};

    pub(super) fn geometry(name: &str) -> Geometry {
        find_preset(name).unwrap_or_else(|| panic!("no preset {name}"))
    }
}

fn deployment(model: &str, element: Element, prefill_tp: u32, decode_tp: u32) -> Deployment {
    Deployment {
        geometry: geometry(model),
        element,
        prefill_tp,
        decode_tp,
        pp: 1,
        block_tokens: None,
        windows: true,
        mtp: false,
    }
}

fn request(deployment: Deployment, layouts: &[Layout]) -> KvRequest {
    KvRequest {
        deployment,
        block_tokens: vec![],
        layouts: layouts.to_vec(),
        tokens: PROMPTS.to_vec(),
        workloads: vec![],
        fragmentation_permille: 1000,
        placements: 4,
        in_flight: 1,
        cache_bytes: 0,
        sweep: false,
    }
}

#[test]
fn bytes_per_rank_and_on_all_ranks_are_right() {
    type Row = (&'static str, u32, Element, bool, [f64; 4], [f64; 4]);
    let rows: [Row; 12] = [
        (
            "llama-3.1-8b",
            1,
            Element::Bf16,
            true,
            [128.0, 1024.0, 4096.0, 16384.0],
            [128.0, 1024.0, 4096.0, 16384.0],
        ),
        ("llama-3.1-8b", 1, Element::Fp8, true, [64.0, 512.0, 2048.0, 8192.0], [64.0, 512.0, 2048.0, 8192.0]),
        (
            "llama-3.1-70b",
            8,
            Element::Bf16,
            true,
            [40.0, 320.0, 1280.0, 5120.0],
            [320.0, 2560.0, 10240.0, 40960.0],
        ),
        (
            "llama-3.1-70b",
            8,
            Element::Fp8,
            true,
            [20.0, 160.0, 640.0, 2560.0],
            [160.0, 1280.0, 5120.0, 20480.0],
        ),
        (
            "qwen3-235b",
            4,
            Element::Bf16,
            true,
            [47.0, 376.0, 1504.0, 6016.0],
            [188.0, 1504.0, 6016.0, 24064.0],
        ),
        // Eight ranks for four heads: each head is kept twice.
        (
            "qwen3-235b",
            8,
            Element::Bf16,
            true,
            [47.0, 376.0, 1504.0, 6016.0],
            [376.0, 3008.0, 12032.0, 48128.0],
        ),
        // Latent attention is whole on every rank.
        (
            "deepseek-r1",
            8,
            Element::Bf16,
            true,
            [68.625, 549.0, 2196.0, 8784.0],
            [549.0, 4392.0, 17568.0, 70272.0],
        ),
        (
            "deepseek-v3",
            8,
            Element::Fp8,
            true,
            [34.3125, 274.5, 1098.0, 4392.0],
            [274.5, 2196.0, 8784.0, 35136.0],
        ),
        (
            "gpt-oss-120b",
            1,
            Element::Bf16,
            false,
            [72.0, 576.0, 2304.0, 9216.0],
            [72.0, 576.0, 2304.0, 9216.0],
        ),
        ("gpt-oss-120b", 8, Element::Fp8, false, [4.5, 36.0, 144.0, 576.0], [36.0, 288.0, 1152.0, 4608.0]),
        (
            "gpt-oss-120b",
            1,
            Element::Bf16,
            true,
            [40.5, 292.5, 1156.5, 4612.5],
            [40.5, 292.5, 1156.5, 4612.5],
        ),
        (
            "gpt-oss-120b",
            8,
            Element::Fp8,
            true,
            [2.53125, 18.28125, 72.28125, 288.28125],
            [20.25, 146.25, 578.25, 2306.25],
        ),
    ];
    for (model, tp, element, windows, rank, all) in rows {
        let deployment = Deployment { windows, ..deployment(model, element, tp, tp) };
        let sizings = request(deployment, &[Layout::VllmSplit]).sizings().unwrap();
        for (at, sizing) in sizings.iter().enumerate() {
            assert_eq!(
                sizing.cache_bytes_per_rank as f64 / MIB,
                rank[at],
                "{model} TP{tp} {element} {}",
                sizing.tokens
            );
            assert_eq!(
                sizing.cache_bytes_all_ranks as f64 / MIB,
                all[at],
                "{model} TP{tp} {element} {}",
                sizing.tokens
            );
        }
    }
}

#[test]
fn bytes_of_a_token_are_right() {
    for (model, bytes) in [
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("qwen3-235b", 192_512),
        ("deepseek-r1", 70_272),
        ("kimi-k2", 70_272),
        ("gpt-oss-120b", 73_728),
    ] {
        assert_eq!(geometry(model).prompt_bytes(Element::Bf16, 1, false, false), bytes, "{model}");
    }
    // A prompt of 32k tokens of Qwen3-235B was published as 12.62 GB on eight ranks, each head twice.
    assert_eq!(2 * geometry("qwen3-235b").prompt_bytes(Element::Bf16, 32 << 10, true, false), 12_616_466_432);
    let with_mtp = geometry("deepseek-v3").prompt_bytes(Element::Bf16, 1, true, true);
    assert_eq!(with_mtp, 62 * 576 * 2, "one layer more");
}

/// Bytes of a descriptor and their number for 1k, 8k, 32k and 128k tokens, per rank.
#[test]
fn descriptors_are_counted_as_the_engines_make_them() {
    type Row = (&'static str, u32, Element, Layout, u32, u64, [u64; 4]);
    let rows: [Row; 14] = [
        ("llama-3.1-8b", 1, Element::Bf16, Layout::VllmSplit, 16, 32_768, [4_096, 32_768, 131_072, 524_288]),
        ("llama-3.1-8b", 1, Element::Bf16, Layout::VllmPacked, 16, 65_536, [2_048, 16_384, 65_536, 262_144]),
        ("llama-3.1-8b", 1, Element::Bf16, Layout::VllmSplit, 64, 131_072, [1_024, 8_192, 32_768, 131_072]),
        ("llama-3.1-8b", 1, Element::Bf16, Layout::VllmCrossLayer, 16, 2_097_152, [64, 512, 2_048, 8_192]),
        (
            "llama-3.1-70b",
            8,
            Element::Bf16,
            Layout::VllmSplit,
            16,
            4_096,
            [10_240, 81_920, 327_680, 1_310_720],
        ),
        ("llama-3.1-70b", 8, Element::Fp8, Layout::VllmPacked, 16, 4_096, [5_120, 40_960, 163_840, 655_360]),
        ("llama-3.1-70b", 8, Element::Bf16, Layout::VllmCrossLayer, 16, 655_360, [64, 512, 2_048, 8_192]),
        (
            "llama-3.1-70b",
            8,
            Element::Bf16,
            Layout::Sglang,
            1,
            256,
            [163_840, 1_310_720, 5_242_880, 20_971_520],
        ),
        ("qwen3-235b", 4, Element::Bf16, Layout::VllmSplit, 16, 4_096, [12_032, 96_256, 385_024, 1_540_096]),
        ("qwen3-235b", 8, Element::Bf16, Layout::VllmSplit, 16, 4_096, [12_032, 96_256, 385_024, 1_540_096]),
        ("deepseek-r1", 8, Element::Bf16, Layout::VllmSplit, 16, 18_432, [3_904, 31_232, 124_928, 499_712]),
        ("deepseek-r1", 8, Element::Fp8, Layout::VllmPacked, 64, 36_864, [976, 7_808, 31_232, 124_928]),
        ("deepseek-r1", 8, Element::Bf16, Layout::VllmCrossLayer, 16, 1_124_352, [64, 512, 2_048, 8_192]),
        ("gpt-oss-120b", 8, Element::Fp8, Layout::VllmSplit, 16, 1_024, [4_608, 36_864, 147_456, 589_824]),
    ];
    for (model, tp, element, layout, block, bytes, counts) in rows {
        let deployment = Deployment { windows: false, ..deployment(model, element, tp, tp) };
        let request = KvRequest { block_tokens: vec![block], ..request(deployment, &[layout]) };
        let sizings = request.sizings().unwrap();
        assert_eq!(
            sizings.iter().map(|s| s.descriptors_per_rank).collect::<Vec<_>>(),
            counts,
            "{model} {layout}"
        );
        assert!(sizings.iter().all(|s| s.descriptor_bytes == bytes), "{model} {layout}: {sizings:?}");
    }
}

#[test]
fn windows_move_only_their_blocks() {
    // 18 layers keep 1,024 tokens in 64 blocks, 18 keep 128 tokens in 8; two regions each.
    let sizing =
        &request(deployment("gpt-oss-120b", Element::Bf16, 1, 1), &[Layout::VllmSplit]).sizings().unwrap()[0];
    assert_eq!(sizing.descriptors_per_rank, 18 * 2 * (64 + 8));
    let error =
        RankPair::new(&deployment("gpt-oss-120b", Element::Bf16, 1, 1), Layout::VllmCrossLayer).unwrap_err();
    assert!(error.fix.contains("--no-hybrid-cache"), "{error}");
}

#[test]
fn more_decode_ranks_read_slices_of_larger_blocks() {
    // Llama 70B from 2 to 8 ranks: 4,096 of the 16,384 bytes of each block and region.
    let pair = RankPair::new(&deployment("llama-3.1-70b", Element::Bf16, 2, 8), Layout::VllmSplit).unwrap();
    assert_eq!(
        (pair.piece_bytes, pair.source.block_bytes, pair.destination.block_bytes),
        (4_096, 16_384, 4_096)
    );
    assert_eq!((pair.sources_per_decode_rank, pair.is_sliced()), (1, true));
    assert_eq!(pair.descriptors_per_decode_rank(8 << 10), 81_920);
}

#[test]
fn more_prefill_ranks_multiply_the_descriptors_of_a_decode_rank() {
    let pair = RankPair::new(&deployment("llama-3.1-70b", Element::Bf16, 8, 4), Layout::VllmSplit).unwrap();
    assert_eq!(
        (pair.piece_bytes, pair.source.block_bytes, pair.destination.block_bytes),
        (4_096, 4_096, 8_192)
    );
    assert_eq!(pair.descriptors_per_decode_rank(1 << 10), 2 * 10_240);
    assert_eq!(pair.bytes_per_decode_rank(1 << 10), 80 << 20);
}

#[test]
fn sglang_slices_are_a_descriptor_a_token() {
    let pair = RankPair::new(&deployment("llama-3.1-70b", Element::Bf16, 4, 8), Layout::Sglang).unwrap();
    assert_eq!((pair.piece_bytes, pair.pieces), (256, 64));
    assert_eq!((pair.source.piece_pitch, pair.destination.piece_pitch), (512, 256));
    assert_eq!(pair.descriptors_per_decode_rank(1 << 10), 163_840);
}

#[test]
fn heads_that_both_sides_repeat_are_whole_blocks_and_latent_vectors_are_never_sliced() {
    for (model, prefill, decode) in [("qwen3-235b", 4, 8), ("deepseek-r1", 2, 8), ("kimi-k2", 16, 1)] {
        let pair =
            RankPair::new(&deployment(model, Element::Bf16, prefill, decode), Layout::VllmSplit).unwrap();
        assert!(!pair.is_sliced(), "{model}");
        assert_eq!(pair.sources_per_decode_rank, 1, "{model}");
    }
}

#[test]
fn a_staged_prompt_is_one_descriptor_of_all_its_bytes() {
    let sizing = &request(deployment("llama-3.1-70b", Element::Bf16, 8, 8), &[Layout::TrtllmStaged])
        .sizings()
        .unwrap()[0];
    assert_eq!((sizing.descriptors_per_rank, sizing.descriptor_bytes), (1, 40 << 20));
    assert_eq!(sizing.op, crate::plan::Op::Write);
}

#[test]
fn a_pipeline_stage_holds_its_share_and_the_fullest_counts() {
    let rank = |pp| {
        RankPair::new(
            &Deployment { pp, ..deployment("llama-3.1-405b", Element::Bf16, 8, 8) },
            Layout::VllmSplit,
        )
    };
    assert_eq!(rank(4).unwrap().layers.len(), 32, "126 layers on 4 stages: 32, 32, 31, 31");
    assert_eq!(rank(127).unwrap_err().flag, "--pp");
    assert_eq!(rank(0).unwrap_err().flag, "--pp");
}

#[test]
fn ranks_that_do_not_divide_the_heads_are_refused() {
    let flag = |prefill, decode| {
        RankPair::new(&deployment("llama-3.1-8b", Element::Bf16, prefill, decode), Layout::VllmSplit)
            .unwrap_err()
            .flag
    };
    assert_eq!(flag(3, 1), "--prefill-tp");
    assert_eq!(flag(1, 12), "--decode-tp");
    assert_eq!(flag(0, 1), "--prefill-tp");
    assert_eq!(flag(1, 1 << 20), "--decode-tp");
}

#[test]
fn a_misspelt_model_gets_the_nearest_name() {
    let error = resolve_model("llama-3.1-70").unwrap_err();
    assert!(error.fix.contains("did you mean llama-3.1-70b?"), "{error}");
    assert!(resolve_model("QWEN3-8B").is_ok());
    assert!(resolve_model("deepsek-r1").unwrap_err().fix.contains("deepseek-r1"));
}

#[test]
fn layout_names_carry_the_version_that_was_read() {
    for layout in Layout::ALL {
        assert_eq!(layout.to_string().parse::<Layout>(), Ok(layout));
        assert_eq!(layout.name().parse::<Layout>(), Ok(layout));
        assert_eq!(serde_json::to_value(layout).unwrap(), layout.to_string());
    }
    assert_eq!("vllm".parse::<Layout>(), Ok(Layout::VllmSplit));
    assert!("vllm-split@1234567".parse::<Layout>().unwrap_err().contains("00bd5131"));
    assert!("tgi".parse::<Layout>().is_err());
}

#[test]
fn token_counts_are_read_as_people_write_them() {
    assert_eq!("8k".parse(), Ok(TokenCount(8192)));
    assert_eq!("1M".parse(), Ok(TokenCount(1 << 20)));
    assert_eq!("1000".parse(), Ok(TokenCount(1000)));
    for wrong in ["", "k", "0", "0k", "-1", "8 k", "1.5k", "99999999999999999999", "1000m", "8g", "+8"] {
        assert!(wrong.parse::<TokenCount>().is_err(), "{wrong}");
    }
    assert_eq!(TokenCount(8192).to_string(), "8k");
    assert_eq!(TokenCount(1000).to_string(), "1000");
}

fn config(text: &str) -> Result<Geometry, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), text).unwrap();
    read_config(folder.path())
}

#[test]
fn a_config_gives_what_the_preset_of_its_model_has() {
    let gpt_oss = r#"{"architectures": ["GptOssForCausalLM"], "num_hidden_layers": 4, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 2880, "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}"#;
    let found = config(gpt_oss).unwrap();
    let preset = geometry("gpt-oss-20b");
    assert_eq!(found.attention, preset.attention, "an explicit head_dim wins over hidden_size / heads");
    assert_eq!(found.layers, preset.layers[..4]);

    let deepseek = r#"{"model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "num_nextn_predict_layers": 1}"#;
    let found = config(deepseek).unwrap();
    assert_eq!((found.attention, found.mtp_layers), (geometry("deepseek-v3").attention, 1));
    assert_eq!(found.layers, geometry("deepseek-v3").layers);

    let mixtral = r#"{"model_type": "mixtral", "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096,
        "num_key_value_heads": 8, "sliding_window": null}"#;
    let found = config(mixtral).unwrap();
    assert_eq!(
        (found.attention, &found.layers),
        (geometry("mixtral-8x7b").attention, &geometry("mixtral-8x7b").layers)
    );
    assert!(found.notes[0].contains("hidden_size"), "what was derived is said");
}

#[test]
fn hybrids_keep_a_cache_in_their_attention_layers_only() {
    let base = r#""num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256"#;
    let kept = |rest: &str| {
        let model = config(&format!("{{{base}, {rest}}}")).unwrap();
        model.cached_layers(true, false).iter().map(|(layer, _)| *layer).collect::<Vec<_>>()
    };
    assert_eq!(
        kept(r#""num_hidden_layers": 8, "full_attention_interval": 4, "linear_num_key_heads": 16"#),
        [3, 7]
    );
    assert_eq!(
        kept(
            r#""num_hidden_layers": 8, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16"#
        ),
        [4]
    );
    assert_eq!(kept(r#""num_hidden_layers": 5, "hybrid_override_pattern": "M-M*-""#), [3]);
    assert_eq!(kept(r#""num_hidden_layers": 3, "layers_block_type": ["mamba", "attention", "mamba"]"#), [1]);
    assert_eq!(kept(r#""num_hidden_layers": 6, "num_kv_shared_layers": 4"#), [0, 1]);
    let inner = r#"{"architectures": ["Some_VL"], "text_config": {"num_hidden_layers": 6, "sliding_window": 512,
        "sliding_window_pattern": 3, "num_key_value_heads": 2, "head_dim": 128}}"#;
    let windows: Vec<_> =
        config(inner).unwrap().cached_layers(true, false).into_iter().map(|(_, w)| w).collect();
    assert_eq!(windows, [Some(512), Some(512), None, Some(512), Some(512), None]);
}

#[test]
fn what_a_config_does_not_say_is_named_and_not_guessed() {
    let refused = |text: &str, words: &[&str]| {
        let error = config(text).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "`{word}` in {error}");
        }
    };
    refused("not json", &["is not a config.json"]);
    refused("[1, 2]", &["no JSON object"]);
    refused("{}", &["num_hidden_layers", "num_key_value_heads", "head_dim"]);
    refused(
        r#"{"architectures": ["NewThing"], "num_hidden_layers": 2, "head_dim": 64}"#,
        &["NewThing", "num_key_value_heads"],
    );
    refused(
        r#"{"num_hidden_layers": 2, "num_key_value_heads": 2, "hidden_size": 100, "num_attention_heads": 3}"#,
        &["head_dim"],
    );
    refused(
        r#"{"num_hidden_layers": -2, "num_key_value_heads": 2, "head_dim": 64}"#,
        &["num_hidden_layers", "-2"],
    );
    refused(
        r#"{"num_hidden_layers": 1e3, "num_key_value_heads": 2, "head_dim": 64}"#,
        &["num_hidden_layers"],
    );
    refused(r#"{"num_hidden_layers": 99999999, "num_key_value_heads": 2, "head_dim": 64}"#, &["cannot be"]);
    refused(
        r#"{"num_hidden_layers": 2, "num_key_value_heads": [1, 2], "head_dim": 64}"#,
        &["layer to layer"],
    );
    refused(
        r#"{"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 64, "sliding_window": 9}"#,
        &["layer_types"],
    );
    refused(
        r#"{"num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 64, "layer_types": ["odd"]}"#,
        &["`odd`"],
    );
    refused(
        r#"{"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 64, "layer_types": ["full_attention"]}"#,
        &["1 layers"],
    );
    refused(
        r#"{"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 64, "mamba_d_ssm": 1}"#,
        &["mamba_d_ssm"],
    );
    refused(
        r#"{"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 64, "v_head_dim": 128}"#,
        &["v_head_dim"],
    );
    refused(r#"{"is_encoder_decoder": true, "num_hidden_layers": 2}"#, &["encoder-decoder"]);
    refused(r#"{"num_hidden_layers": 2, "kv_lora_rank": 512}"#, &["qk_rope_head_dim"]);
    let absurd = config(r#"{"num_hidden_layers": 2, "num_key_value_heads": 0, "head_dim": 64}"#).unwrap();
    assert!(absurd.check().is_err());
}

#[test]
fn a_large_file_is_no_config() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    assert!(matches!(read_config(&path), Err(ConfigError::TooLarge(_))));
    assert!(matches!(read_config(&folder.path().join("none")), Err(ConfigError::Unreadable { .. })));
}

fn small(layout: Layout, prefill: u32, decode: u32, permille: u32, tokens: &[u64]) -> KvShape {
    let request = KvRequest {
        tokens: tokens.to_vec(),
        fragmentation_permille: permille,
        in_flight: tokens.len() as u32,
        block_tokens: vec![16],
        ..request(deployment("gpt-oss-20b", Element::Bf16, prefill, decode), &[layout])
    };
    request.shapes().unwrap().remove(0).1
}

/// Runs of blocks that stand together on both sides, as NIXL could merge them.
fn runs(placement: &Placement) -> usize {
    let ids = || placement.source.iter().zip(&placement.destination);
    let together =
        ids().zip(ids().skip(1)).filter(|((a, b), (c, d))| **c == **a + 1 && **d == **b + 1).count();
    placement.source.len() - together
}

#[test]
fn fragmentation_decides_how_many_runs_there_are() {
    let shape = |permille| small(Layout::VllmSplit, 1, 1, permille, &[4096]);
    assert_eq!(runs(&place(&shape(0), 7, 0, 0)), 1);
    let half = runs(&place(&shape(500), 7, 0, 0));
    assert!((100..=129).contains(&half), "{half} of 256");
    let full = runs(&place(&shape(1000), 7, 0, 0));
    assert!(full >= 254, "{full} of 256");
}

#[test]
fn placements_differ_from_round_to_round_and_repeat_with_the_seed() {
    let shape = small(Layout::VllmSplit, 1, 1, 1000, &[4096]);
    let rounds: Vec<Placement> = (0..4).map(|round| place(&shape, 7, 0, round)).collect();
    for (at, placement) in rounds.iter().enumerate() {
        assert!(rounds[..at].iter().all(|earlier| earlier != placement));
        assert_eq!(*placement, place(&shape, 7, 0, at as u32));
        assert_ne!(placement.source, placement.destination);
    }
    assert_ne!(place(&shape, 8, 0, 0), rounds[0]);
}

#[test]
fn prompts_in_flight_never_share_a_block() {
    let shape = small(Layout::VllmSplit, 1, 1, 700, &[1024, 160, 4000]);
    assert_eq!(shape.slots(), 3);
    for round in 0..4 {
        let mut seen = BTreeSet::new();
        for slot in 0..3 {
            let placement = place(&shape, 3, slot, round);
            assert_eq!(placement.destination.len() as u32, shape.placed_blocks(slot));
            assert!(placement.destination.iter().all(|id| seen.insert(*id)));
        }
        assert!(seen.iter().all(|id| u64::from(*id) < shape.blocks_in_pool()));
    }
}

#[test]
fn a_pool_is_larger_than_the_cache() {
    let request = KvRequest {
        cache_bytes: 32 << 20,
        tokens: vec![16],
        ..request(deployment("llama-3.1-8b", Element::Bf16, 1, 1), &Layout::ALL)
    };
    for (_, shape) in request.shapes().unwrap() {
        assert!(shape.footprint().unwrap() >= 64 << 20, "{}", shape.title());
    }
}

#[test]
fn kinds_of_transfer_follow_from_layout_and_ranks() {
    let kinds = |prefill, decode, workloads: &[Workload]| {
        let request = KvRequest {
            workloads: workloads.to_vec(),
            tokens: vec![1024],
            ..request(deployment("llama-3.1-70b", Element::Bf16, prefill, decode), &[Layout::VllmSplit])
        };
        request
            .shapes()
            .map(|shapes| shapes.into_iter().map(|(_, shape)| shape.kind).collect::<Vec<_>>())
            .map_err(|e| e.flag)
    };
    assert_eq!(kinds(8, 8, &[]), Ok(vec!["paged".to_owned()]));
    assert_eq!(kinds(4, 8, &[]), Ok(vec!["slice".to_owned()]));
    assert_eq!(
        kinds(8, 4, &[Workload::Slice, Workload::Staged]),
        Ok(vec!["slice".to_owned(), "staged".to_owned()])
    );
    assert_eq!(kinds(4, 8, &[Workload::Paged]), Err("--workload"));
    assert_eq!(kinds(8, 8, &[Workload::Slice]), Err("--workload"));
}

#[test]
fn the_longest_prompt_that_fits_does_and_one_block_more_does_not() {
    let request = KvRequest {
        tokens: vec![1 << 20],
        ..request(deployment("llama-3.1-8b", Element::Bf16, 1, 1), &[Layout::VllmSplit])
    };
    let (_, shape) = request.shapes().unwrap().remove(0);
    let limit = 1 << 30;
    let tokens = request.longest_that_fits(&shape, limit).unwrap();
    let memory = |tokens| {
        let (_, shape) = KvRequest { tokens: vec![tokens], ..request.clone() }.shapes().unwrap().remove(0);
        memory_of(&shape).unwrap()
    };
    assert!(memory(tokens) <= limit && memory(tokens + 16) > limit, "{tokens}");
    assert_eq!(request.longest_that_fits(&shape, 1 << 20), None);
}

/// Rank of the target, and offset of the slice in the wider block, for the first ranks of the initiator.
fn meetings(op: Op, layout: Layout, prefill: u32, decode: u32) -> Vec<(u32, u64)> {
    let shape = small(layout, prefill, decode, 1000, &[64]);
    let meet = |rank: u32| {
        let mut shape = shape.clone();
        let peer = shape.meet(op, rank);
        assert!(shape.fits(shape.footprint().unwrap()), "rank {rank}");
        (peer, shape.source.piece_offset.max(shape.destination.piece_offset) / shape.piece_bytes)
    };
    (0..8).map(meet).collect()
}

#[test]
fn ranks_meet_those_that_hold_their_heads() {
    // gpt-oss-20b has 8 KV heads.
    let own: Vec<(u32, u64)> = (0..8).map(|rank| (rank, 0)).collect();
    assert_eq!(meetings(Op::Read, Layout::VllmSplit, 8, 8), own);
    let shared = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)];
    assert_eq!(meetings(Op::Read, Layout::VllmSplit, 4, 8), shared);
    assert_eq!(meetings(Op::Write, Layout::VllmSplit, 8, 4), shared);
    // The side with fewer ranks: each stands for the share of one rank across.
    let split: Vec<(u32, u64)> = (0..8).map(|rank| (rank, u64::from(rank % 2))).collect();
    assert_eq!(meetings(Op::Write, Layout::VllmSplit, 4, 8), split);
    assert_eq!(meetings(Op::Read, Layout::VllmSplit, 8, 4), split);
    // Sixteen ranks keep each head twice.
    let repeated = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)];
    assert_eq!(meetings(Op::Read, Layout::VllmSplit, 4, 16), repeated);
    let apart: Vec<u32> =
        meetings(Op::Write, Layout::VllmSplit, 16, 4).into_iter().map(|(peer, _)| peer).collect();
    assert_eq!(apart, (0..8).collect::<Vec<_>>(), "two of them would write to the same bytes");
    assert_eq!(meetings(Op::Write, Layout::TrtllmStaged, 8, 4), own);
}

#[test]
fn a_place_names_layer_part_and_block() {
    let shape = small(Layout::VllmSplit, 1, 1, 1000, &[1024]);
    let (blocks, bytes) = (shape.blocks_in_pool(), shape.source.block_bytes);
    let at = |row: u64| shape.place_at(Where::Source, row * bytes + 8).map(|place| place.to_string());
    assert_eq!(at(0).unwrap(), "layer 0, K, block 0");
    assert_eq!(at(blocks + 5).unwrap(), "layer 0, V, block 5");
    assert_eq!(at(7 * blocks + 9).unwrap(), "layer 3, V, block 9");
    assert_eq!(at(shape.regions() * blocks), None);
    let whole = small(Layout::Sglang, 1, 8, 1000, &[1024]);
    assert_eq!(whole.parts, Parts::KeyAndValue);
}

#[test]
fn a_shape_that_leaves_its_pool_is_known_before_it_is_used() {
    let shape = small(Layout::Sglang, 1, 4, 1000, &[320, 64]);
    let pool = shape.footprint().unwrap();
    assert!(shape.fits(pool) && !shape.fits(pool - 1));
    let absurd: [&dyn Fn(&mut KvShape); 11] = [
        &|s| s.placements = 0,
        &|s| s.block_tokens = 0,
        &|s| s.pieces = 0,
        &|s| s.pieces = u32::MAX,
        &|s| s.piece_bytes = u64::MAX,
        &|s| s.source.block_bytes = u64::MAX / 2,
        &|s| s.source.piece_offset = u64::MAX - 7,
        &|s| s.destination.piece_pitch = u64::MAX,
        &|s| s.pool_blocks = vec![u32::MAX, 1],
        &|s| s.prompts = vec![u64::MAX, 64],
        &|s| s.prompts.clear(),
    ];
    for (at, spoil) in absurd.iter().enumerate() {
        let mut shape = shape.clone();
        spoil(&mut shape);
        assert!(!shape.fits(pool), "{at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever the shape, its pieces are words inside of the regions, no two touch, and the indices lead to them.
    #[test]
    fn pieces_are_disjoint_and_indexed(
        ranks in prop::sample::select(vec![(1, 1), (2, 8), (8, 2), (1, 4)]),
        layout in prop::sample::select(vec![Layout::VllmSplit, Layout::VllmPacked, Layout::Sglang]),
        tokens in prop::collection::vec(1_u64..600, 1..3),
        permille in 0_u32..=1000,
        round in 0_u32..8,
    ) {
        let shape = small(layout, ranks.0, ranks.1, permille, &tokens);
        let all: [Vec<(u64, u64)>; 2] = [Where::Source, Where::Destination].map(|at| shape.all_pieces(at).collect());
        let mut claimed = Claimed::none(&shape);
        let mut seen: [BTreeSet<u64>; 2] = Default::default();
        for slot in 0..shape.slots() {
            let placement = place(&shape, 5, slot, round);
            let blocks = shape.pieces_of(slot, &placement, &mut claimed);
            prop_assert_eq!(blocks.len() as u64, shape.descriptors(slot));
            prop_assert!(shape.fits(shape.footprint().unwrap()));
            let (mut source, mut destination) = (Vec::new(), Vec::new());
            shape.fill_indices(slot, &placement, &mut source, &mut destination);
            for ((block, from), to) in blocks.iter().zip(&source).zip(&destination) {
                prop_assert_eq!((block.source, block.bytes), all[0][*from as usize]);
                prop_assert_eq!((block.destination, block.bytes), all[1][*to as usize]);
                prop_assert!(block.source % 8 == 0 && block.destination % 8 == 0);
                prop_assert!(block.source + block.bytes <= shape.footprint().unwrap());
                prop_assert!(block.destination + block.bytes <= shape.footprint().unwrap());
                prop_assert!(seen[0].insert(block.source) && seen[1].insert(block.destination));
            }
            let ends = shape.ends_of(slot, &placement);
            prop_assert_eq!((ends[0], ends[1]), (blocks[0], blocks[blocks.len() - 1]));
            prop_assert!(shape.pieces_of(slot, &placement, &mut claimed).is_empty(), "claimed once");
        }
    }

    #[test]
    fn no_config_brings_the_reader_down(text in "[ -~]{0,200}") {
        let _ = config(&text);
    }
}
