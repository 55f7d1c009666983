//! One container and everything around it that decides what its process sees.

use std::rc::Rc;

use super::super::environment::{Environment, Maps};
use super::super::launch::{Launch, Program};
use super::super::secret;
use super::super::selection::{Library, select};
use super::super::worker::{Engine, Placed, Pod, Resource, Role, SharedMemory, Worker};
use super::super::yaml::{Node, Span};
use super::placement;

/// Containers beside a model server that move no KV cache.
const SIDECARS: &[&str] =
    &["routing-proxy", "routing-sidecar", "istio-proxy", "envoy", "otel", "metrics", "epp"];

/// Files in which UCX, NIXL and NCCL look for settings.
pub(crate) const SETTINGS_FILES: &[&str] = &["ucx.conf", "nixl.cfg", ".nixl.cfg", "nccl.conf", ".nccl.conf"];

/// What was found of a worker, before it is put together.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) object: String,
    pub(super) container: Rc<Node>,
    pub(super) container_name: String,
    pub(super) span: Span,
    pub(super) pod_spec: Option<Rc<Node>>,
    pub(super) annotations: Vec<Rc<Node>>,
    /// Lists of variables, weakest first; the container's own comes after them.
    pub(super) env: Vec<(&'static str, Rc<Node>)>,
    /// Variables as a mapping.
    pub(super) env_map: Vec<Rc<Node>>,
    /// `envFrom` of levels above the container.
    pub(super) sources: Vec<Rc<Node>>,
    pub(super) resources: Vec<Rc<Node>>,
    pub(super) security: Vec<Rc<Node>>,
    pub(super) shared_memory: Option<SharedMemory>,
    pub(super) nodes: u32,
    pub(super) replicas: u32,
    pub(super) labels: Vec<(String, String)>,
    pub(super) dynamo: bool,
    pub(super) engine_hint: Option<Engine>,
    pub(super) backend_hint: Option<(String, Span)>,
    /// What the object itself says about the role: the most trusted.
    pub(super) role_hints: Vec<(Role, String)>,
    pub(super) label_role: Option<(Role, String)>,
    pub(super) path_role: Option<(Role, String)>,
    pub(super) script: Option<Launch>,
    pub(super) skip_container_env: bool,
    /// It lacks what a whole object has.
    pub(super) patch: bool,
    pub(super) partial: Option<String>,
    /// It counts as a worker only when something in it shows that it is one.
    pub(super) must_show: bool,
    /// What a running process sees, instead of what manifests say.
    pub(super) process: Option<Environment>,
}

impl Draft {
    pub(super) fn new(name: &str, object: &str, container: Rc<Node>) -> Self {
        Self {
            name: name.to_owned(),
            object: object.to_owned(),
            container_name: container.text_of(&["name"]).unwrap_or("main").to_owned(),
            span: container.span,
            container,
            pod_spec: None,
            annotations: Vec::new(),
            env: Vec::new(),
            env_map: Vec::new(),
            sources: Vec::new(),
            resources: Vec::new(),
            security: Vec::new(),
            shared_memory: None,
            nodes: 1,
            replicas: 1,
            labels: Vec::new(),
            dynamo: false,
            engine_hint: None,
            backend_hint: None,
            role_hints: Vec::new(),
            label_role: None,
            path_role: None,
            script: None,
            skip_container_env: false,
            patch: false,
            partial: None,
            must_show: false,
            process: None,
        }
    }

    /// Puts the worker together. None when nothing shows that the container is one.
    pub(super) fn finish(mut self, maps: &Maps, hide: &mut Vec<Span>) -> Option<Worker> {
        let launch = self.script.take().unwrap_or_else(|| Launch::read(&self.container));
        let image = self.container.get("image").and_then(placed);
        let is_process = self.process.is_some();
        let mut env = self.process.take().unwrap_or_else(|| self.environment(maps, hide));
        env.add_launch(&launch);
        let (engine, dynamo) = self.engine(&launch, image.as_ref());
        let pod = self.pod(maps);
        let mut selection = select(engine, &launch, &env, &pod, maps);
        if let Some((backend, span)) = &self.backend_hint
            && matches!(selection.library, Library::Unknown)
        {
            selection.library = Library::Nixl(vec![backend.clone()]);
            selection.span = *span;
            "kv_backend".clone_into(&mut selection.from);
        }
        let (mut role, mut role_from) = self.role(&launch, selection.role.as_ref());
        let active_test = launch.is_active_test();
        if active_test {
            (role, role_from) = (Role::Both, "its command: kvwire, the active test".to_owned());
            selection.disaggregated = Some(true);
            selection.library = Library::Nixl(vec!["UCX".to_owned()]);
        }
        if self.dynamo && matches!(role, Role::Prefill | Role::Decode) && selection.disaggregated.is_none() {
            selection.disaggregated = Some(true);
        }
        let shows = active_test
            || engine != Engine::Plain
            || env.settings().iter().any(|s| is_transport(&s.name))
            || env.removed.iter().any(|r| is_transport(&r.text))
            || pod
                .resources
                .iter()
                .any(|r| r.name.contains("gpu") || r.name.contains("rdma") || r.name.contains("/efa"));
        if (self.must_show && !shows) || is_sidecar(&self.container_name) {
            return None;
        }
        let partial = self
            .partial
            .or_else(|| self.patch.then(|| "a patch: it states no image, or no selector".to_owned()));
        Some(Worker {
            name: self.name,
            object: self.object,
            container: self.container_name,
            role,
            role_from,
            engine,
            dynamo,
            span: self.span,
            partial,
            is_process,
            image,
            launch,
            env,
            selection,
            pod,
        })
    }

    fn environment(&self, maps: &Maps, hide: &mut Vec<Span>) -> Environment {
        let mut env = Environment::default();
        for source in &self.sources {
            env.add_sources(source, maps);
        }
        if let Some(source) = self.container.get("envFrom") {
            env.add_sources(source, maps);
        }
        let own = if self.skip_container_env {
            None
        } else {
            self.container.get("env").or_else(|| self.container.get("envs"))
        };
        let own = own.filter(|n| n.is_list()).map(|list| ("container env", Rc::clone(list)));
        for (origin, list) in self.env.iter().cloned().chain(own) {
            for entry in list.items() {
                let name = entry.text_of(&["name"]).unwrap_or("");
                if let (true, Some(value)) = (secret::is_secret_name(name), entry.get("value")) {
                    hide.push(value.span);
                }
            }
            env.add_list(&list, origin, maps);
        }
        for map in &self.env_map {
            env.add_map(map, "profile env");
        }
        env
    }

    fn engine(&self, launch: &Launch, image: Option<&Placed>) -> (Engine, bool) {
        match launch.program {
            Some((_, Program::Engine(engine))) => return (engine, self.dynamo),
            Some((_, Program::DynamoEngine(engine))) => return (engine, true),
            Some((_, Program::Other)) | None => {}
        }
        if let Some(engine) = self.engine_hint {
            return (engine, self.dynamo);
        }
        let name = image.map_or("", |i| i.text.as_str());
        let name = name.split('@').next().unwrap_or(name).rsplit('/').next().unwrap_or(name);
        let engine = if name.contains("vllm") || name.contains("llm-d-cuda") {
            Engine::Vllm
        } else if name.contains("sglang") {
            Engine::Sglang
        } else if name.contains("tensorrt") || name.contains("trtllm") {
            Engine::TensorRtLlm
        } else if self.dynamo {
            Engine::Dynamo
        } else {
            Engine::Plain
        };
        (engine, self.dynamo)
    }

    /// From the most trusted to the least.
    fn role(&self, launch: &Launch, selected: Option<&(Role, String)>) -> (Role, String) {
        if let Some(hint) = self.role_hints.iter().find(|h| h.0 != Role::Unknown) {
            return hint.clone();
        }
        if matches!(launch.program, Some((_, Program::Other))) {
            return (Role::NotAWorker, "its command".to_owned());
        }
        let by_flag = selected.filter(|s| !s.1.starts_with("kv_role"));
        let stated = by_flag.or(self.label_role.as_ref()).or(self.path_role.as_ref()).or(selected);
        if let Some(stated) = stated {
            return stated.clone();
        }
        let name = self.name.to_ascii_lowercase();
        match (name.contains("prefill"), name.contains("decode")) {
            (true, false) => (Role::Prefill, "its name".to_owned()),
            (false, true) => (Role::Decode, "its name".to_owned()),
            _ if self.dynamo && name.contains("frontend") => (Role::NotAWorker, "its name".to_owned()),
            _ => (Role::Unknown, String::new()),
        }
    }

    fn pod(&self, maps: &Maps) -> Pod {
        let mut pod = Pod {
            nodes: self.nodes.max(1),
            replicas: self.replicas,
            labels: self.labels.clone(),
            ..Pod::default()
        };
        let own = self.container.get("resources");
        for resources in self.resources.iter().chain(own) {
            add_resources(resources, &mut pod);
        }
        let context = self.container.get("securityContext");
        for context in self.security.iter().chain(context) {
            add_security(context, &mut pod);
        }
        for list in &self.annotations {
            for (key, value) in list.entries() {
                if let (Some(key), Some(value)) = (key.text(), placed(value)) {
                    pod.annotations.push((key.to_owned(), value));
                }
            }
        }
        for mount in self.container.get("volumeMounts").map_or(&[][..], |m| m.items()) {
            let path = mount.get("mountPath").or_else(|| mount.get("mountPoint")).and_then(placed);
            if let (Some(path), Some(volume)) = (path, mount.text_of(&["name"])) {
                pod.mounts.push((path, volume.to_owned()));
            }
        }
        if let Some(spec) = &self.pod_spec {
            add_pod(spec, &mut pod);
            placement::add(spec, &mut pod);
        }
        for (path, volume) in &pod.mounts {
            let map =
                pod.config_volumes.iter().find(|(v, _)| v == volume).and_then(|(_, m)| maps.config.get(m));
            let named = SETTINGS_FILES.iter().filter(|name| map.is_some_and(|m| m.contains_key(**name)));
            pod.settings_files.extend(named.map(|name| (path.clone(), *name)));
        }
        let mounted = self.mounted_shared_memory(&pod);
        pod.shared_memory = match (mounted, self.shared_memory.clone()) {
            (Some(mounted), _) => mounted,
            (None, _) if pod.host_ipc => SharedMemory::Host,
            (None, stated) => stated.unwrap_or_default(),
        };
        pod
    }

    /// A memory volume on /dev/shm.
    fn mounted_shared_memory(&self, pod: &Pod) -> Option<SharedMemory> {
        let (_, volume) =
            pod.mounts.iter().find(|(path, _)| path.text.trim_end_matches('/') == "/dev/shm")?;
        let volumes = self.pod_spec.as_ref()?.get("volumes")?;
        let volume = volumes.items().iter().find(|v| v.text_of(&["name"]) == Some(volume))?;
        if volume.text_of(&["hostPath", "path"]).is_some() {
            return Some(SharedMemory::Host);
        }
        match volume.at(&["emptyDir", "sizeLimit"]).and_then(placed) {
            Some(size) => Some(SharedMemory::Size(size)),
            None => Some(SharedMemory::Unlimited),
        }
    }
}

/// True for a container beside a model server that moves no KV cache.
pub(super) fn is_sidecar(name: &str) -> bool {
    SIDECARS.iter().any(|s| name.contains(s))
}

fn placed(node: &Rc<Node>) -> Option<Placed> {
    Some(Placed { text: node.text()?.to_owned(), span: node.span })
}

fn add_resources(resources: &Node, pod: &mut Pod) {
    for section in ["limits", "requests"] {
        let Some(section) = resources.get(section) else { continue };
        let custom = section.get("custom").map_or(&[][..], |c| c.entries());
        for (key, value) in section.entries().iter().chain(custom) {
            let (Some(name), Some(amount)) = (key.text(), value.text()) else { continue };
            if !pod.resources.iter().any(|r| r.name == name) {
                let span = key.span;
                pod.resources.push(Resource { name: name.to_owned(), amount: amount.to_owned(), span });
            }
        }
    }
    for claim in resources.get("claims").map_or(&[][..], |c| c.items()) {
        pod.container_claims.extend(claim.get("name").and_then(placed));
    }
}

fn add_security(context: &Node, pod: &mut Pod) {
    pod.privileged |= context.text_of(&["privileged"]) == Some("true");
    for name in context.at(&["capabilities", "add"]).map_or(&[][..], |c| c.items()) {
        if let Some(text) = name.text() {
            let text = text.strip_prefix("CAP_").unwrap_or(text).to_owned();
            pod.capabilities.push(Placed { text, span: name.span });
        }
    }
}

fn add_pod(spec: &Node, pod: &mut Pod) {
    let is_true = |key: &str| spec.text_of(&[key]) == Some("true");
    pod.host_network |= is_true("hostNetwork");
    pod.host_ipc |= is_true("hostIPC");
    pod.host_pid |= is_true("hostPID");
    for claim in spec.get("resourceClaims").map_or(&[][..], |c| c.items()) {
        let behind =
            claim.text_of(&["resourceClaimTemplateName"]).or_else(|| claim.text_of(&["resourceClaimName"]));
        if let Some(name) = claim.get("name").and_then(placed) {
            pod.pod_claims.push((name, behind.unwrap_or("").to_owned()));
        }
    }
    for volume in spec.get("volumes").map_or(&[][..], |v| v.items()) {
        let Some(name) = volume.text_of(&["name"]) else { continue };
        pod.host_paths.extend(volume.text_of(&["hostPath", "path"]).map(str::to_owned));
        if let Some(map) = volume.text_of(&["configMap", "name"]) {
            pod.config_volumes.push((name.to_owned(), map.to_owned()));
        }
    }
    for (key, value) in spec.get("nodeSelector").map_or(&[][..], |n| n.entries()) {
        if let (Some(key), Some(value)) = (key.text(), value.text()) {
            pod.node_labels.push((key.to_owned(), value.to_owned()));
        }
    }
}

/// Variables that show that a container moves KV cache.
fn is_transport(name: &str) -> bool {
    ["UCX_", "NIXL_", "VLLM_NIXL_", "MC_", "FI_", "SGLANG_DISAGG", "TRTLLM_NIXL"]
        .iter()
        .any(|p| name.starts_with(p))
        || name == "KV_TRANSFER_CONFIG"
}
