//! The KV geometry in a Hugging Face `config.json`.
//!
//! Nothing is guessed: what decides the cache must stand in the file, and a file that says something that is not known
//! here is refused with the field's name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use thiserror::Error;

use super::geometry::{Attention, Geometry, Layer};

/// The largest real one has 0.1 MB.
const FILE_MAX: u64 = 4 << 20;
/// Layers that are listed one by one, at most.
const LAYERS_MAX: u64 = 4096;

/// Why a file gives no geometry.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    /// It cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// It is larger than any `config.json`.
    #[error("{0} is larger than 4 MiB: that is no config.json")]
    TooLarge(PathBuf),
    /// It is not JSON, or not an object.
    #[error("{path} is not a config.json: {why}")]
    NotAConfig { path: PathBuf, why: String },
    /// The cache cannot be told from it.
    #[error("{path} ({kind}) does not say how large its KV cache is: missing {}", fields.join(", "))]
    Missing { path: PathBuf, kind: String, fields: Vec<String> },
    /// It says something that is not known here.
    #[error("{path} ({kind}): {why}")]
    Unknown { path: PathBuf, kind: String, why: String },
}

/// Reads a `config.json`, or the one in a folder.
///
/// # Errors
/// [`ConfigError`] with the file and what is wrong with it.
pub(crate) fn read(path: &Path) -> Result<Geometry, ConfigError> {
    let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let failed = |source| ConfigError::Unreadable { path: path.clone(), source };
    let mut text = Vec::new();
    File::open(&path).map_err(failed)?.take(FILE_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_MAX {
        return Err(ConfigError::TooLarge(path));
    }
    let not = |why: String| ConfigError::NotAConfig { path: path.clone(), why };
    let value: Value = serde_json::from_slice(&text).map_err(|e| not(e.to_string()))?;
    let Value::Object(root) = value else { return Err(not("it holds no JSON object".to_owned())) };
    let name = name_of(&root, &path);
    let mut source = format!("{}", path.display());
    let mut fields = &root;
    for inner in ["text_config", "llm_config", "language_config"] {
        if let Some(Value::Object(text)) = root.get(inner) {
            fields = text;
            source = format!("{inner} of {source}");
        }
    }
    Reader { path: &path, fields, kind: kind_of(&root), missing: Vec::new(), notes: Vec::new() }
        .geometry(name, source)
}

fn name_of(root: &Map<String, Value>, path: &Path) -> String {
    let stated = root.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.is_empty());
    let folder = || path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let name = stated.map(str::to_owned).or_else(folder).unwrap_or_else(|| "config.json".to_owned());
    let last = name.rsplit('/').next().unwrap_or_default();
    last.chars().filter(|c| !c.is_control() && *c != ' ').take(64).collect()
}

fn kind_of(root: &Map<String, Value>) -> String {
    let architecture = root.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
    let kind = architecture.or_else(|| root.get("model_type").and_then(Value::as_str));
    kind.unwrap_or("no architecture named").chars().filter(|c| !c.is_control()).take(64).collect()
}

struct Reader<'a> {
    path: &'a Path,
    fields: &'a Map<String, Value>,
    kind: String,
    missing: Vec<String>,
    notes: Vec<String>,
}

/// Layer kinds by their names in `layer_types`, `layers_block_type` and the like.
fn layer_of(name: &str, window: Option<u64>) -> Option<Result<Layer, &'static str>> {
    match name {
        "full_attention" | "attention" | "hybrid" => Some(Ok(Layer::Everything)),
        "sliding_attention" => Some(window.map(|tokens| Layer::Window { tokens }).ok_or("sliding_window")),
        "linear_attention" | "mamba" | "mamba2" | "conv" | "recurrent" | "ssm" | "mlp" | "moe" => {
            Some(Ok(Layer::Nothing))
        }
        _ => None,
    }
}

impl Reader<'_> {
    fn geometry(mut self, name: String, source: String) -> Result<Geometry, ConfigError> {
        if self.fields.get("is_encoder_decoder") == Some(&Value::Bool(true)) {
            return Err(
                self.unknown("an encoder-decoder model keeps two kinds of cache, which is not known here")
            );
        }
        let layers = self.need("num_hidden_layers")?;
        let attention = self.attention()?;
        let layers = match layers {
            Some(count) if count <= LAYERS_MAX => self.layers(count)?,
            Some(count) => return Err(self.unknown(&format!("num_hidden_layers {count} cannot be"))),
            None => Vec::new(),
        };
        let mut mtp_layers = 0;
        for field in ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"] {
            mtp_layers = mtp_layers.max(self.number(field)?.unwrap_or(0));
        }
        if self.number("index_head_dim")?.is_some() {
            self.notes.push("the cache of the sparse-attention indexer is not counted".to_owned());
        }
        if layers.contains(&Layer::Nothing) {
            self.notes.push("the fixed-size state of attention-free layers is not counted".to_owned());
        }
        let (Some(attention), []) = (attention, self.missing.as_slice()) else {
            return Err(ConfigError::Missing {
                path: self.path.to_owned(),
                kind: self.kind,
                fields: self.missing,
            });
        };
        let mtp_layers = u32::try_from(mtp_layers).unwrap_or(u32::MAX);
        if u64::from(mtp_layers) > LAYERS_MAX {
            return Err(self.unknown(&format!("{mtp_layers} prediction layers cannot be")));
        }
        Ok(Geometry { name, source, attention, layers, mtp_layers, notes: self.notes })
    }

    fn attention(&mut self) -> Result<Option<Attention>, ConfigError> {
        if let Some(latent) = self.number("kv_lora_rank")?.filter(|rank| *rank > 0) {
            let Some(rope) = self.need("qk_rope_head_dim")? else { return Ok(None) };
            return Ok(Some(Attention::Latent { latent: self.width(latent)?, rope: self.width(rope)? }));
        }
        if let Some(value) = self.number("v_head_dim")? {
            let same = self.number("head_dim")? == Some(value);
            if !same {
                return Err(self.unknown(
                    "v_head_dim differs from head_dim: keys and values of different size are not known here",
                ));
            }
        }
        let heads = self.need("num_key_value_heads")?;
        let head_dim = match self.number("head_dim")? {
            Some(head_dim) => Some(head_dim),
            None => self.head_dim_from_hidden()?,
        };
        let (Some(heads), Some(head_dim)) = (heads, head_dim) else { return Ok(None) };
        Ok(Some(Attention::Grouped { kv_heads: self.width(heads)?, head_dim: self.width(head_dim)? }))
    }

    /// Where a config leaves the head size out, Transformers defines it as hidden size over heads.
    fn head_dim_from_hidden(&mut self) -> Result<Option<u64>, ConfigError> {
        let (hidden, heads) = (self.number("hidden_size")?, self.number("num_attention_heads")?);
        let (Some(hidden), Some(heads)) = (hidden, heads.filter(|heads| *heads > 0)) else {
            self.missing.push("head_dim (or hidden_size and num_attention_heads)".to_owned());
            return Ok(None);
        };
        if !hidden.is_multiple_of(heads) {
            return Err(self.unknown(&format!(
                "head_dim is not given, and hidden_size {hidden} is no multiple of num_attention_heads {heads}"
            )));
        }
        self.notes.push(format!("head_dim {} is hidden_size / num_attention_heads", hidden / heads));
        Ok(Some(hidden / heads))
    }

    fn layers(&mut self, count: u64) -> Result<Vec<Layer>, ConfigError> {
        let window = self
            .number("sliding_window")?
            .filter(|_| self.fields.get("use_sliding_window") != Some(&Value::Bool(false)));
        let mut layers = self.listed(count, window)?;
        if let Some(shared) = self.number("num_kv_shared_layers")?.filter(|shared| *shared > 0) {
            let own = layers.len().saturating_sub(usize::try_from(shared).unwrap_or(usize::MAX));
            layers.iter_mut().skip(own).for_each(|layer| *layer = Layer::Nothing);
            self.notes.push(format!("the last {shared} layers read the cache of earlier ones"));
        }
        Ok(layers)
    }

    fn listed(&mut self, count: u64, window: Option<u64>) -> Result<Vec<Layer>, ConfigError> {
        for field in ["layer_types", "layers_block_type"] {
            if let Some(Value::Array(names)) = self.fields.get(field) {
                return self.named(field, names, count, window);
            }
        }
        if let Some(Value::String(pattern)) = self.fields.get("hybrid_override_pattern") {
            let layers: Vec<Layer> =
                pattern.chars().map(|c| if c == '*' { Layer::Everything } else { Layer::Nothing }).collect();
            return self.counted("hybrid_override_pattern", layers, count);
        }
        if let Some(every) = self.number("full_attention_interval")?.filter(|every| *every > 0) {
            return Ok((1..=count)
                .map(|n| if n.is_multiple_of(every) { Layer::Everything } else { Layer::Nothing })
                .collect());
        }
        if let Some(period) = self.number("attn_layer_period")?.filter(|period| *period > 0) {
            let offset = self.number("attn_layer_offset")?.unwrap_or(0);
            return Ok((0..count)
                .map(|n| if n % period == offset { Layer::Everything } else { Layer::Nothing })
                .collect());
        }
        if let Some(field) = self.fields.keys().find(|key| hints_at_other_layers(key)) {
            return Err(self.unknown(&format!(
                "{field} says that some layers are not attention, but not which (no layer_types)"
            )));
        }
        let Some(tokens) = window else { return Ok(vec![Layer::Everything; count as usize]) };
        if let Some(every) = self.number("sliding_window_pattern")?.filter(|every| *every > 0) {
            let layer =
                |n: u64| if n.is_multiple_of(every) { Layer::Everything } else { Layer::Window { tokens } };
            return Ok((1..=count).map(layer).collect());
        }
        // Mistral's first models use their window in every layer.
        if self
            .fields
            .get("model_type")
            .and_then(Value::as_str)
            .is_some_and(|kind| ["mistral", "mixtral"].contains(&kind))
        {
            return Ok(vec![Layer::Window { tokens }; count as usize]);
        }
        self.missing.push(format!("layer_types (sliding_window is {tokens}, but not in which layers)"));
        Ok(Vec::new())
    }

    fn named(
        &self,
        field: &str,
        names: &[Value],
        count: u64,
        window: Option<u64>,
    ) -> Result<Vec<Layer>, ConfigError> {
        let mut layers = Vec::with_capacity(names.len().min(LAYERS_MAX as usize));
        for name in names.iter().take(LAYERS_MAX as usize + 1) {
            let text = name.as_str().unwrap_or("something that is no text");
            match layer_of(text, window) {
                Some(Ok(layer)) => layers.push(layer),
                Some(Err(missing)) => {
                    return Err(ConfigError::Missing {
                        path: self.path.to_owned(),
                        kind: self.kind.clone(),
                        fields: vec![format!("{missing} ({field} has {text})")],
                    });
                }
                None => {
                    let text: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
                    return Err(self
                        .unknown(&format!("{field} has `{text}`, a kind of layer that is not known here")));
                }
            }
        }
        self.counted(field, layers, count)
    }

    fn counted(&self, field: &str, layers: Vec<Layer>, count: u64) -> Result<Vec<Layer>, ConfigError> {
        if layers.len() as u64 == count {
            return Ok(layers);
        }
        Err(self
            .unknown(&format!("{field} lists {} layers where num_hidden_layers is {count}", layers.len())))
    }

    fn need(&mut self, field: &str) -> Result<Option<u64>, ConfigError> {
        let found = self.number(field)?;
        if found.is_none() {
            self.missing.push(field.to_owned());
        }
        Ok(found)
    }

    /// A field that is absent or null is `None`; one that is no count is an error.
    fn number(&self, field: &str) -> Result<Option<u64>, ConfigError> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                match value.as_u64() {
                    Some(number) => Ok(Some(number)),
                    None if value.is_array() => Err(self
                        .unknown(&format!("{field} differs from layer to layer, which is not known here"))),
                    None => Err(self.unknown(&format!("{field} is {value:.40}, which is no count"))),
                }
            }
        }
    }

    fn width(&self, number: u64) -> Result<u32, ConfigError> {
        u32::try_from(number).map_err(|_| self.unknown(&format!("a width of {number} cannot be")))
    }

    fn unknown(&self, why: &str) -> ConfigError {
        ConfigError::Unknown { path: self.path.to_owned(), kind: self.kind.clone(), why: why.to_owned() }
    }
}

/// Fields of models in which not every layer is attention.
fn hints_at_other_layers(key: &str) -> bool {
    key.starts_with("mamba_")
        || key.starts_with("ssm_")
        || key.starts_with("linear_")
        || key == "block_configs"
        || key == "attn_layer_indices"
}
