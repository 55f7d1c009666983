//! What moves the KV cache, and by which selector of which engine.

use std::rc::Rc;

use super::environment::{Environment, Maps};
use super::launch::Launch;
use super::shell;
use super::worker::{Engine, Pod, Role};
use super::yaml::{Limits, Node, ProblemKind, Span, compose};

/// The library that carries the KV cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Library {
    /// NIXL, with these backends (UCX when nothing says otherwise).
    Nixl(Vec<String>),
    /// Mooncake's transfer engine.
    Mooncake,
    /// Another one.
    Other(String),
    /// The files do not say.
    #[default]
    Unknown,
}

/// The library and where it was chosen.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    /// What carries the KV cache.
    pub library: Library,
    /// True when prefill and decode are apart; none when the files do not say.
    pub disaggregated: Option<bool>,
    /// What says so, for people.
    pub from: String,
    /// Where.
    pub span: Span,
    /// Backend parameters: key, value, where.
    pub params: Vec<(String, String, Span)>,
    /// What a role stands in: `kv_role`, `disaggregation-mode` in a ConfigMap.
    pub role: Option<(Role, String)>,
    /// The configuration file of a TensorRT-LLM worker that names no backend; none when it does, or is not in the input.
    pub unconfigured: Option<Span>,
    /// What must agree between the two sides: name, value, where.
    pub shared: Vec<(&'static str, String, Span)>,
}

impl Selection {
    /// True when NIXL's UCX backend carries the KV cache, as far as the files say.
    pub(super) fn is_nixl_ucx(&self) -> bool {
        matches!(&self.library, Library::Nixl(backends) if backends.iter().any(|b| b == "UCX"))
    }

    /// True when NIXL's LIBFABRIC backend does.
    pub(super) fn is_libfabric(&self) -> bool {
        matches!(&self.library, Library::Nixl(backends) if backends.iter().any(|b| b == "LIBFABRIC"))
    }

    /// For people.
    pub(super) fn word(&self) -> String {
        match &self.library {
            Library::Nixl(backends) => format!("NIXL with {}", backends.join(" and ")),
            Library::Mooncake => "Mooncake".to_owned(),
            Library::Other(name) => name.clone(),
            Library::Unknown => "not stated".to_owned(),
        }
    }
}

/// Reads the selectors of `engine`.
pub(super) fn select(
    engine: Engine,
    launch: &Launch,
    env: &Environment,
    pod: &Pod,
    maps: &Maps,
) -> Selection {
    let mut selection = Selection { span: launch.span, ..Selection::default() };
    let value = |names: &[&str]| {
        let flag = launch.flag(names)?;
        let text = env.expand_word(&flag.value);
        let text = match text {
            Some(text) if flag.dynamic => shell::expand(&text, &|name| env.text(name).map(str::to_owned)),
            other => other,
        };
        Some((text, flag.span))
    };
    for (name, flags) in SHARED {
        if let Some((Some(text), span)) = value(flags) {
            selection.shared.push((name, text, span));
        }
    }
    let config = config_file(&value, pod, maps);
    if let Some(config) = &config {
        read_config(config, &mut selection);
    }
    match engine {
        Engine::Vllm => vllm(&value, env, &mut selection),
        Engine::Sglang => sglang(&value, env, config.as_deref(), &mut selection),
        Engine::TensorRtLlm => tensorrt_llm(env, config.as_deref(), &mut selection),
        Engine::Dynamo | Engine::Plain => {
            // A patch states the variable without the command that uses it.
            vllm(&value, env, &mut selection);
            if matches!(selection.library, Library::Unknown)
                && env.get("SGLANG_DISAGGREGATION_NIXL_BACKEND").is_some()
            {
                sglang(&value, env, config.as_deref(), &mut selection);
            }
        }
    }
    if let Some((Some(mode), _)) = value(&["disaggregation-mode"]) {
        selection.disaggregated = Some(!matches!(mode.as_str(), "null" | "none" | "agg"));
        selection.role =
            role_of(&mode).map(|role| (role, "--disaggregation-mode".to_owned())).or(selection.role);
    }
    for (flag, role) in [("is-prefill-worker", Role::Prefill), ("is-decode-worker", Role::Decode)] {
        if launch.flag(&[flag]).is_some_and(|f| f.value != "false") {
            selection.disaggregated = Some(true);
            selection.role = Some((role, format!("--{flag}")));
        }
    }
    selection
}

/// What two sides of one model must have in common: name, and the flags of the engines.
const SHARED: &[(&str, &[&str])] = &[
    ("KV cache type", &["kv-cache-dtype"]),
    ("block size", &["block-size", "page-size"]),
    ("model", &["model", "model-path"]),
];

/// The role that a word of an engine means.
pub(super) fn role_of(word: &str) -> Option<Role> {
    match word {
        "prefill" => Some(Role::Prefill),
        "decode" => Some(Role::Decode),
        "pd" | "both" | "agg" | "aggregated" | "prefill_and_decode" => Some(Role::Both),
        _ => None,
    }
}

type Value<'a> = &'a dyn Fn(&[&str]) -> Option<(Option<String>, Span)>;

/// vLLM: `--kv-transfer-config`, as JSON in the flag or through a variable.
fn vllm(value: Value<'_>, env: &Environment, selection: &mut Selection) {
    let flag = value(&["kv-transfer-config"]);
    // In a patch the variable stands alone; its name is what every recipe calls it.
    let (text, span, from) = match flag {
        Some((text, span)) => (text, span, "--kv-transfer-config"),
        None => match env.get("KV_TRANSFER_CONFIG") {
            Some(setting) => (setting.text().map(str::to_owned), setting.span, "KV_TRANSFER_CONFIG"),
            None => return vllm_parts(value, selection),
        },
    };
    selection.disaggregated = Some(true);
    selection.from = from.to_owned();
    selection.span =
        env.get("KV_TRANSFER_CONFIG").filter(|s| s.text() == text.as_deref()).map_or(span, |s| s.span);
    let Some(config) = text.as_deref().and_then(parse) else { return };
    read_connector(&config, selection, 0);
}

/// `--kv-transfer-config.kv_connector NixlConnector` and the like.
fn vllm_parts(value: Value<'_>, selection: &mut Selection) {
    if let Some((Some(name), span)) = value(&["kv-transfer-config.kv-connector", "kv-connector"]) {
        selection.disaggregated = Some(true);
        selection.span = span;
        selection.from = "--kv-transfer-config".to_owned();
        selection.library = library_of(&name);
    }
}

fn read_connector(config: &Node, selection: &mut Selection, depth: u32) {
    let name = config.text_of(&["kv_connector"]).unwrap_or("");
    let extra = config.get("kv_connector_extra_config");
    match config.text_of(&["kv_role"]) {
        Some("kv_producer") => selection.role = Some((Role::Prefill, "kv_role: kv_producer".to_owned())),
        Some("kv_consumer") => selection.role = Some((Role::Decode, "kv_role: kv_consumer".to_owned())),
        _ => {}
    }
    if let Some(connectors) = extra.and_then(|e| e.get("connectors"))
        && depth < 4
    {
        for inner in connectors.items() {
            read_connector(inner, selection, depth + 1);
            if matches!(selection.library, Library::Nixl(_)) {
                return;
            }
        }
        return;
    }
    selection.library = library_of(name);
    let Some(extra) = extra else { return };
    if let (Library::Nixl(backends), Some(list)) = (&mut selection.library, extra.get("backends")) {
        let stated: Vec<String> = list.items().iter().filter_map(|b| b.text().map(str::to_owned)).collect();
        if !stated.is_empty() {
            *backends = stated;
        }
    }
    for (key, value) in extra.entries() {
        if let (Some(key), Some(value)) = (key.text(), value.text()) {
            selection.params.push((key.to_owned(), value.to_owned(), selection.span));
        }
    }
}

fn library_of(connector: &str) -> Library {
    match connector {
        "NixlConnector" | "NixlPushConnector" | "PdConnector" => Library::Nixl(vec!["UCX".to_owned()]),
        "MooncakeConnector" => Library::Mooncake,
        "" => Library::Unknown,
        other => Library::Other(other.to_owned()),
    }
}

/// SGLang: `--disaggregation-transfer-backend`, then a variable for NIXL's backend.
fn sglang(value: Value<'_>, env: &Environment, config: Option<&Node>, selection: &mut Selection) {
    let backend = value(&["disaggregation-transfer-backend"]);
    let backend = backend.or_else(|| {
        let node = config?.get("disaggregation-transfer-backend")?;
        Some((node.text().map(str::to_owned), node.span))
    });
    let mode = value(&["disaggregation-mode"]).is_some()
        || config.is_some_and(|c| c.get("disaggregation-mode").is_some());
    if selection.disaggregated.is_none() && (mode || backend.is_some()) {
        selection.disaggregated = Some(true);
    }
    let variable = env.get("SGLANG_DISAGGREGATION_NIXL_BACKEND");
    let (name, span) = match (backend, variable) {
        (Some((name, span)), _) => (name, span),
        (None, Some(setting)) => (Some("nixl".to_owned()), setting.span),
        // The engine's own default.
        (None, None) if mode => (Some("mooncake".to_owned()), selection.span),
        (None, None) => return,
    };
    selection.from = "--disaggregation-transfer-backend".to_owned();
    selection.span = span;
    selection.library = match name.as_deref() {
        Some("nixl") => match variable {
            None => Library::Nixl(vec!["UCX".to_owned()]),
            Some(setting) => {
                selection.from = "SGLANG_DISAGGREGATION_NIXL_BACKEND".to_owned();
                selection.span = setting.span;
                setting.text().map_or(Library::Unknown, |b| Library::Nixl(vec![b.to_owned()]))
            }
        },
        Some("mooncake") => Library::Mooncake,
        Some(other) => Library::Other(other.to_owned()),
        None => Library::Unknown,
    };
    let params = env.get("SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS");
    if let Some((setting, node)) = params.and_then(|s| Some((s, parse(s.text()?)?))) {
        for (key, value) in node.entries() {
            if let (Some(key), Some(value)) = (key.text(), value.text()) {
                selection.params.push((key.to_owned(), value.to_owned(), setting.span));
            }
        }
    }
}

/// TensorRT-LLM: the cache transceiver's backend in its configuration, and variables where that says DEFAULT.
fn tensorrt_llm(env: &Environment, config: Option<&Node>, selection: &mut Selection) {
    let stated = config.and_then(|c| c.at(&["cache_transceiver_config", "backend"]));
    let Some(backend) = stated.and_then(|n| n.text()) else {
        selection.unconfigured = config.map(|c| c.span);
        return;
    };
    selection.disaggregated = Some(true);
    selection.from = "cache_transceiver_config.backend".to_owned();
    selection.span = stated.map_or(selection.span, |n| n.span);
    let mut library = backend.to_ascii_uppercase();
    if library == "DEFAULT" {
        library = "NIXL".to_owned();
        // In this order, and only exactly "1" counts.
        for name in ["NIXL", "UCX", "MOONCAKE", "MPI"] {
            if env.text(&format!("TRTLLM_USE_{name}_KVCACHE")) == Some("1") {
                name.clone_into(&mut library);
                break;
            }
        }
    }
    selection.library = match library.as_str() {
        "NIXL" => {
            let backend = env.get("TRTLLM_NIXL_KVCACHE_BACKEND");
            match backend.map(|s| s.text()) {
                Some(Some("LIBFABRIC")) => Library::Nixl(vec!["LIBFABRIC".to_owned()]),
                Some(None) => Library::Unknown,
                _ => Library::Nixl(vec!["UCX".to_owned()]),
            }
        }
        "MOONCAKE" => Library::Mooncake,
        other => Library::Other(format!("TensorRT-LLM's own {other}")),
    };
}

/// The engine's configuration file, when it comes from a ConfigMap of the input.
fn config_file(value: Value<'_>, pod: &Pod, maps: &Maps) -> Option<Rc<Node>> {
    let (path, _) = value(&["extra-engine-args", "extra-llm-api-options", "config"])?;
    let path = path?;
    let (folder, file) = path.rsplit_once('/')?;
    let mount =
        pod.mounts.iter().find(|(at, _)| at.text.trim_end_matches('/') == folder || at.text == path)?;
    let map = pod.config_volumes.iter().find(|(volume, _)| *volume == mount.1)?;
    let text = maps.config.get(&map.1)?.get(file)?;
    embedded(text)
}

/// YAML inside a block of another YAML file, with positions in that file.
fn embedded(text: &Rc<Node>) -> Option<Rc<Node>> {
    embedded_all(text).0.into_iter().next()
}

/// All documents inside a block of another YAML file, and what is wrong with the text.
pub(super) fn embedded_all(text: &Rc<Node>) -> (Vec<Rc<Node>>, Option<String>) {
    let Some(scalar) = text.scalar() else { return (Vec::new(), None) };
    let (documents, problems) = compose(&scalar.text, text.span.file, Limits::default());
    // Lines of a `|` block are lines of the file; for other scalars only the whole is known.
    let documents =
        documents.iter().map(|root| super::patch::moved(root, text.span, scalar.literal)).collect();
    let problem = problems.into_iter().find(|p| p.kind != ProblemKind::DuplicateKey).map(|p| p.text);
    (documents, problem)
}

fn read_config(config: &Node, selection: &mut Selection) {
    if let Some(mode) = config.text_of(&["disaggregation-mode"])
        && let Some(role) = role_of(mode)
    {
        selection.disaggregated = Some(true);
        selection.role = Some((role, "disaggregation-mode in the ConfigMap".to_owned()));
    }
    if let Some(node) = config.at(&["kv_cache_config", "dtype"])
        && let Some(text) = node.text()
    {
        selection.shared.push(("KV cache type", text.to_owned(), node.span));
    }
}

/// JSON, or YAML in one value.
fn parse(text: &str) -> Option<Rc<Node>> {
    let limits = Limits { nodes: 5_000, expanded: 5_000, depth: 32, documents: 2 };
    compose(text, 0, limits).0.into_iter().next().filter(|n| n.is_map())
}
