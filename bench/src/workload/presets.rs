//! Models whose KV cache is known by name. Every figure is one of the model's published `config.json`.

use super::geometry::{Attention, Geometry, Layer};

/// Which layers keep only a window.
#[derive(Clone, Copy)]
enum Windows {
    None,
    /// The first, third, fifth … layer.
    EveryOther(u64),
}

struct Preset {
    name: &'static str,
    /// The Hugging Face repository whose `config.json` the figures are from.
    repository: &'static str,
    layers: u32,
    attention: Attention,
    windows: Windows,
    mtp_layers: u32,
}

const fn grouped(
    name: &'static str,
    repository: &'static str,
    layers: u32,
    kv_heads: u32,
    head_dim: u32,
) -> Preset {
    let attention = Attention::Grouped { kv_heads, head_dim };
    Preset { name, repository, layers, attention, windows: Windows::None, mtp_layers: 0 }
}

const fn latent(name: &'static str, repository: &'static str, layers: u32, mtp_layers: u32) -> Preset {
    let attention = Attention::Latent { latent: 512, rope: 64 };
    Preset { name, repository, layers, attention, windows: Windows::None, mtp_layers }
}

impl Preset {
    const fn windows(self, tokens: u64) -> Self {
        Self { windows: Windows::EveryOther(tokens), ..self }
    }

    const fn mtp(self, mtp_layers: u32) -> Self {
        Self { mtp_layers, ..self }
    }
}

const PRESETS: [Preset; 16] = [
    grouped("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 32, 8, 128),
    grouped("llama-3.1-70b", "meta-llama/Llama-3.1-70B", 80, 8, 128),
    grouped("llama-3.1-405b", "meta-llama/Llama-3.1-405B", 126, 8, 128),
    grouped("qwen3-8b", "Qwen/Qwen3-8B", 36, 8, 128),
    grouped("qwen3-32b", "Qwen/Qwen3-32B", 64, 8, 128),
    grouped("qwen3-235b", "Qwen/Qwen3-235B-A22B", 94, 4, 128),
    latent("deepseek-v3", "deepseek-ai/DeepSeek-V3", 61, 1),
    latent("deepseek-r1", "deepseek-ai/DeepSeek-R1", 61, 1),
    latent("kimi-k2", "moonshotai/Kimi-K2-Instruct", 61, 0),
    grouped("gpt-oss-20b", "openai/gpt-oss-20b", 24, 8, 64).windows(128),
    grouped("gpt-oss-120b", "openai/gpt-oss-120b", 36, 8, 64).windows(128),
    grouped("glm-4.5", "zai-org/GLM-4.5", 92, 8, 128).mtp(1),
    grouped("glm-4.5-air", "zai-org/GLM-4.5-Air", 46, 8, 128).mtp(1),
    grouped("glm-4.6", "zai-org/GLM-4.6", 92, 8, 128).mtp(1),
    grouped("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", 32, 8, 128),
    grouped("mixtral-8x22b", "mistralai/Mixtral-8x22B-v0.1", 56, 8, 128),
];

/// Every name, in order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The model of that name, upper or lower case.
pub(crate) fn find(name: &str) -> Option<Geometry> {
    let preset = PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name))?;
    let layer = |number: u32| match preset.windows {
        Windows::EveryOther(tokens) if number.is_multiple_of(2) => Layer::Window { tokens },
        _ => Layer::Everything,
    };
    Some(Geometry {
        name: preset.name.to_owned(),
        source: format!("config.json of huggingface.co/{}", preset.repository),
        attention: preset.attention,
        layers: (0..preset.layers).map(layer).collect(),
        mtp_layers: preset.mtp_layers,
        notes: Vec::new(),
    })
}

/// The name that differs least from what was typed.
pub(crate) fn nearest(typed: &str) -> &'static str {
    let typed = typed.to_ascii_lowercase();
    names().min_by_key(|name| edits(&typed, name)).unwrap_or_default()
}

/// Insertions, deletions and replacements that turn one text into the other. Long texts are compared by their start.
fn edits(from: &str, to: &str) -> usize {
    const LONGEST: usize = 64;
    let to: Vec<char> = to.chars().take(LONGEST).collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, left) in from.chars().take(LONGEST).enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, right) in to.iter().enumerate() {
            let replaced = corner + usize::from(left != *right);
            corner = row[column + 1];
            row[column + 1] = replaced.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
