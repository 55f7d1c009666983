//! A worker as the manifests state it: who it is, how it is started, and what it may touch.

use serde::Serialize;

use super::environment::Environment;
use super::launch::Launch;
use super::selection::Selection;
use super::yaml::Span;

/// Which side of the KV transfer a worker is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Computes the KV cache.
    Prefill,
    /// Receives it.
    Decode,
    /// Does both.
    Both,
    /// The files do not say.
    Unknown,
    /// Frontend, router, sidecar: moves no KV cache.
    NotAWorker,
}

impl Role {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Both => "prefill and decode",
            Self::Unknown => "role unknown",
            Self::NotAWorker => "not a worker",
        }
    }
}

/// What serves the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Engine {
    /// vLLM.
    #[serde(rename = "vllm")]
    Vllm,
    /// SGLang.
    #[serde(rename = "sglang")]
    Sglang,
    /// TensorRT-LLM.
    #[serde(rename = "tensorrt-llm")]
    TensorRtLlm,
    /// Dynamo, engine not stated.
    #[serde(rename = "dynamo")]
    Dynamo,
    /// None of these.
    #[serde(rename = "plain")]
    Plain,
}

impl Engine {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::TensorRtLlm => "TensorRT-LLM",
            Self::Dynamo => "Dynamo",
            Self::Plain => "plain",
        }
    }
}

/// A text and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    /// The text.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// A resource that a container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    /// For example `rdma/ib`.
    pub name: String,
    /// The amount as written.
    pub amount: String,
    /// Where.
    pub span: Span,
}

/// Where /dev/shm comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum SharedMemory {
    /// Nothing is stated: 64 MiB from the container runtime.
    #[default]
    Runtime,
    /// Nothing is stated, and the Dynamo operator mounts 8 GiB.
    Operator,
    /// A size is stated.
    Size(Placed),
    /// A memory volume without a limit.
    Unlimited,
    /// The host's own (`hostIPC`).
    Host,
}

/// Pods that a pod wants on its own node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Neighbour {
    /// Key, and the values that it may have; none for any.
    pub labels: Vec<(String, Vec<String>)>,
    /// It is not scheduled without them.
    pub required: bool,
    /// Where.
    pub span: Span,
}

impl Neighbour {
    /// True when it means a pod with these labels.
    pub(super) fn means(&self, labels: &[(String, String)]) -> bool {
        !self.labels.is_empty()
            && self.labels.iter().all(|(key, values)| {
                labels.iter().any(|(k, v)| k == key && (values.is_empty() || values.contains(v)))
            })
    }
}

/// What the pod gives to its container.
#[derive(Debug, Clone, Default)]
pub(super) struct Pod {
    /// Limits and requests.
    pub resources: Vec<Resource>,
    /// Claims that the container uses.
    pub container_claims: Vec<Placed>,
    /// Claims that the pod has: its name, and the template or claim behind it.
    pub pod_claims: Vec<(Placed, String)>,
    /// Capabilities that are added, without `CAP_`.
    pub capabilities: Vec<Placed>,
    /// All capabilities and devices.
    pub privileged: bool,
    /// The host's network.
    pub host_network: bool,
    /// The host's shared memory and semaphores.
    pub host_ipc: bool,
    /// The host's processes.
    pub host_pid: bool,
    /// /dev/shm.
    pub shared_memory: SharedMemory,
    /// Folders of the host that are mounted.
    pub host_paths: Vec<String>,
    /// Mounts: path in the container, volume.
    pub mounts: Vec<(Placed, String)>,
    /// ConfigMaps mounted: volume, ConfigMap.
    pub config_volumes: Vec<(String, String)>,
    /// Annotations of the pod.
    pub annotations: Vec<(String, Placed)>,
    /// Nodes of one replica.
    pub nodes: u32,
    /// Replicas; one where nothing is stated.
    pub replicas: u32,
    /// Labels by which other pods may ask to be near it.
    pub labels: Vec<(String, String)>,
    /// The node that it is bound to by name.
    pub node: Option<Placed>,
    /// Pods that it asks to share a node with.
    pub beside: Vec<Neighbour>,
    /// Files of settings that a ConfigMap brings: mount, name of the file.
    pub settings_files: Vec<(Placed, &'static str)>,
    /// Selectors that say which GPU: values of node labels.
    pub node_labels: Vec<(String, String)>,
}

/// One container that moves KV cache, or might.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    /// For people: `VllmPrefillWorker`, `decode (leader)`.
    pub name: String,
    /// Kind and name of the object that it stands in.
    pub object: String,
    /// The container.
    pub container: String,
    /// Which side.
    pub role: Role,
    /// What says so.
    pub role_from: String,
    /// What serves the model.
    pub engine: Engine,
    /// It runs under Dynamo's operator.
    pub dynamo: bool,
    /// Where it begins.
    pub span: Span,
    /// Why the files do not state all of it; empty when they do.
    pub partial: Option<String>,
    /// It is a process of a running pod, of which the environment and the command line are known and nothing else.
    pub is_process: bool,
    /// The image.
    pub image: Option<Placed>,
    /// How it is started.
    pub launch: Launch,
    /// What its process sees.
    pub env: Environment,
    /// What moves its KV cache.
    pub selection: Selection,
    /// What it may touch.
    pub pod: Pod,
}

impl Worker {
    /// GPUs of one pod; none where no number is stated.
    pub(super) fn gpus(&self) -> Option<u32> {
        self.pod
            .resources
            .iter()
            .filter(|r| r.name == "gpu" || r.name.ends_with("/gpu"))
            .find_map(|r| r.amount.parse().ok())
    }

    /// True when it is judged: not a frontend or sidecar.
    pub(super) fn is_judged(&self) -> bool {
        self.role != Role::NotAWorker
    }
}
