//! The user's own kubectl: it has the rights and the addresses that kvwire does not ask for.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Bytes kept of what kubectl prints.
const STDOUT_MAX: usize = 32 << 20;
/// Bytes kept of what kubectl says on standard error.
const STDERR_MAX: usize = 16 << 10;
/// Time that one call may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// Where kubectl looks: a context and a namespace, or its own defaults.
#[derive(Debug, Clone)]
pub(crate) struct Kubectl {
    context: Option<String>,
    namespace: Option<String>,
}

impl Kubectl {
    /// Follows `--context` and `--namespace`.
    ///
    /// # Errors
    /// A name that Kubernetes does not allow: a sentence with the flag.
    pub(crate) fn new(context: Option<&str>, namespace: Option<&str>) -> Result<Self, String> {
        if let Some(name) = namespace.filter(|name| !is_kubernetes_name(name)) {
            return Err(format!(
                "--namespace: `{name}` is no name of Kubernetes\n  fix: choose one of `kubectl get namespaces`"
            ));
        }
        if context.is_some_and(|context| context.is_empty() || context.contains(char::is_control)) {
            return Err("--context: not a name\n  fix: choose one of `kubectl config get-contexts -o name`"
                .to_owned());
        }
        Ok(Self { context: context.map(str::to_owned), namespace: namespace.map(str::to_owned) })
    }

    /// The namespace that was asked for, as a person would type it.
    pub(crate) fn typed_namespace(&self) -> String {
        self.namespace.as_ref().map_or_else(String::new, |namespace| format!(" -n {namespace}"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        // One word each, so that a value can never be read as another flag.
        command.args(self.context.as_ref().map(|context| format!("--context={context}")));
        command.args(self.namespace.as_ref().map(|namespace| format!("--namespace={namespace}")));
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl to its end with `input` on its standard input and gives what it printed.
    ///
    /// # Errors
    /// What kubectl said, and what to do.
    pub(crate) async fn call(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(|e| not_started(&e))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let work = async {
            let write = async {
                if let Some(mut stdin) = stdin {
                    // A kubectl that does not read to the end says itself why.
                    let _ = stdin.write_all(input.as_bytes()).await;
                }
            };
            let ((), stdout, stderr) =
                tokio::join!(write, bounded(stdout, STDOUT_MAX), bounded(stderr, STDERR_MAX));
            (child.wait().await, stdout, stderr)
        };
        // On the deadline the process is killed as it is dropped.
        let Ok((status, stdout, stderr)) = timeout(DEADLINE, work).await else {
            return Err(format!(
                "kubectl {} gave no answer within {} s\n  fix: see whether the API server answers (kubectl get --raw /readyz)",
                arguments.first().unwrap_or(&""),
                DEADLINE.as_secs()
            ));
        };
        if status.is_ok_and(|status| status.success()) {
            return Ok(stdout);
        }
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        let said = lines[lines.len().saturating_sub(6)..].join("\n  ");
        Err(format!("kubectl {} failed: {said}", arguments.first().unwrap_or(&"")))
    }

    /// Starts a kubectl whose output is read while it runs.
    ///
    /// # Errors
    /// kubectl cannot be started.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Child, String> {
        self.command(arguments).stderr(Stdio::null()).spawn().map_err(|e| not_started(&e))
    }
}

fn not_started(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        return "there is no kubectl on this machine\n  fix: install kubectl, and see that `kubectl get pods` works here"
            .to_owned();
    }
    format!("kubectl cannot be started: {error}\n  fix: see that kubectl is executable")
}

/// Reads a stream to its end and keeps the first `most` bytes. The rest is read and dropped, so that the writer is not
/// held up.
pub(crate) async fn bounded(stream: Option<impl AsyncRead + Unpin>, most: usize) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut kept = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = most.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// A DNS subdomain, as names of pods, namespaces and containers are.
pub(crate) fn is_kubernetes_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253 && name.chars().all(inner) && end(name.chars().next()) && end(name.chars().next_back())
}
