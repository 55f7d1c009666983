//! `kvwire plan`: how large a model's KV cache is, and what its transfer takes in each engine's layout. Moves nothing.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::PlanArgs;
use crate::exit::Exit;
use crate::measure::units::{ByteSize, count};
use crate::plan::PlanError;
use crate::terminal::Terminal;
use crate::workload::{
    Attention, Geometry, KvRequest, Layout, Sizing, TokenCount, find_preset, preset_names,
};

/// Prompts that are looked at unless the user says otherwise.
const TOKENS: [u64; 4] = [1 << 10, 8 << 10, 32 << 10, 128 << 10];

/// What `kvwire plan --json` prints.
#[derive(Debug, Serialize)]
struct Forecast {
    model: Geometry,
    kv_dtype: String,
    prefill_tp: u32,
    decode_tp: u32,
    pp: u32,
    /// What each token adds to the cache of the model, every head once, while it is inside of all windows.
    bytes_per_token: u64,
    layouts: Vec<Sizing>,
    /// Layouts that this model or these ranks do not go with, and why.
    left_out: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &PlanArgs, terminal: &Terminal) -> Exit {
    let text = if args.list_models { Ok(models(args.output.json)) } else { forecast(args) };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Usage;
        }
    };
    match terminal.result(&text) {
        Ok(()) => Exit::Trusted,
        Err(e) => {
            terminal.error(&format!("standard output cannot be written: {e}"));
            Exit::Internal
        }
    }
}

fn models(as_json: bool) -> String {
    let models: Vec<Geometry> = preset_names().filter_map(find_preset).collect();
    if as_json {
        return json(&models);
    }
    let width = models.iter().map(|model| model.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for model in &models {
        let _ = writeln!(text, "{:<width$}  {}; {}", model.name, shape_of(model), model.source);
    }
    text
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn forecast(args: &PlanArgs) -> Result<String, PlanError> {
    let request = args.model.request(&TOKENS, &Layout::ALL)?.ok_or_else(|| PlanError {
        flag: "--model",
        problem: "no model is given".to_owned(),
        fix: "give a name (--list-models shows them) or the path of a config.json".to_owned(),
    })?;
    // A layout that was asked for must fit; of all that exist, those that do not are named.
    let (layouts, left_out) =
        if args.model.layout.is_empty() { each_layout(&request)? } else { (request.sizings()?, Vec::new()) };
    let deployment = &request.deployment;
    let forecast = Forecast {
        model: deployment.geometry.clone(),
        kv_dtype: deployment.element.to_string(),
        prefill_tp: deployment.prefill_tp,
        decode_tp: deployment.decode_tp,
        pp: deployment.pp,
        bytes_per_token: deployment.geometry.prompt_bytes(
            deployment.element,
            1,
            deployment.windows,
            deployment.mtp,
        ),
        layouts,
        left_out,
    };
    Ok(if args.output.json { json(&forecast) } else { table(&forecast) })
}

fn each_layout(request: &KvRequest) -> Result<(Vec<Sizing>, Vec<String>), PlanError> {
    let (mut found, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
    for &layout in &request.layouts {
        match (KvRequest { layouts: vec![layout], ..request.clone() }).sizings() {
            Ok(sizings) => found.extend(sizings),
            Err(error) => {
                left_out.push(format!("{layout}: {}", error.problem));
                first = first.or(Some(error));
            }
        }
    }
    match first {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok((found, left_out)),
    }
}

/// The model in a few words.
fn shape_of(model: &Geometry) -> String {
    let cached = model.cached_layers(true, false);
    let windows = cached.iter().filter(|(_, window)| window.is_some()).count();
    let attention = match model.attention {
        Attention::Grouped { kv_heads, head_dim } => format!("{kv_heads} KV heads of {head_dim}"),
        Attention::Latent { latent, rope } => format!("latent attention of {latent} + {rope}"),
    };
    let mut text = format!("{} layers, {attention}", model.layers.len());
    if cached.len() < model.layers.len() {
        let _ = write!(text, ", {} layers keep a cache", cached.len());
    }
    if let Some((_, Some(tokens))) = cached.iter().find(|(_, window)| window.is_some()) {
        let _ = write!(text, ", {windows} layers with a window of {tokens} tokens");
    }
    if model.mtp_layers > 0 {
        let _ = write!(text, ", {} for multi-token prediction (counted with --mtp)", model.mtp_layers);
    }
    text
}

fn table(forecast: &Forecast) -> String {
    let mut text = String::new();
    let model = &forecast.model;
    let _ = writeln!(text, "{}: {}", model.name, shape_of(model));
    let _ = writeln!(text, "source: {}", model.source);
    for note in &model.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(
        text,
        "{}: {} bytes a token; prefill TP {}, decode TP {}, PP {}\n",
        forecast.kv_dtype,
        count(forecast.bytes_per_token),
        forecast.prefill_tp,
        forecast.decode_tp,
        forecast.pp
    );
    let heads = [
        "layout",
        "block",
        "tokens",
        "op",
        "kind",
        "cache MiB/rank",
        "all ranks MiB",
        "descriptors/rank",
        "bytes each",
        "from",
    ];
    let rows: Vec<Vec<String>> = forecast.layouts.iter().map(row).collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| {
            rows.iter().map(|row| row[column].len()).chain([heads[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let mut line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 3 | 4 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(&heads.map(str::to_owned));
    rows.iter().for_each(|row| line(row));
    text.push_str(
        "\n* per decode rank and prompt; descriptors before NIXL merges neighbours; whole blocks are moved\n",
    );
    text.push_str(
        "* from: prefill ranks that one decode rank gets its prompt from, each with an equal share\n",
    );
    if forecast.pp > 1 {
        text.push_str("* per rank: of the stage that keeps the most\n");
    }
    for left_out in &forecast.left_out {
        let _ = writeln!(text, "* left out {left_out}");
    }
    text
}

fn row(sizing: &Sizing) -> Vec<String> {
    vec![
        sizing.layout.clone(),
        sizing.block_tokens.to_string(),
        TokenCount(sizing.tokens).to_string(),
        sizing.op.to_string(),
        sizing.workload.to_string(),
        mebibytes(sizing.cache_bytes_per_rank),
        mebibytes(sizing.cache_bytes_all_ranks),
        count(sizing.descriptors_per_rank),
        ByteSize(sizing.descriptor_bytes).to_string(),
        sizing.prefill_ranks_per_decode_rank.to_string(),
    ]
}

/// To four significant digits, and every digit before the point.
fn mebibytes(bytes: u64) -> String {
    let value = bytes as f64 / f64::from(1 << 20);
    match value {
        v if v < 10.0 => format!("{v:.3}"),
        v if v < 100.0 => format!("{v:.2}"),
        v if v < 1000.0 => format!("{v:.1}"),
        v => count(v.round() as u64),
    }
}
