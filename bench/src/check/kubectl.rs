//! A command in a pod, through the user's own kubectl: read-only, with a deadline, and with every failure in words.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use checks::node::CAPTURE_MAX;
use checks::{Finding, Status};
use tokio::process::Command;
use tokio::time::timeout;

use crate::cli::PodArgs;
use crate::deploy::kubectl::{bounded, is_kubernetes_name};

/// Id of the finding about a pod that could not be looked into.
pub(super) const ID: &str = "pod-exec";
/// Bytes kept of what kubectl says on standard error.
const STDERR_MAX: usize = 16 << 10;
/// Exit codes of a container runtime that found no such program, or could not start it.
const NO_PROGRAM: [i32; 2] = [126, 127];

/// One container of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    namespace: Option<String>,
    container: Option<String>,
    context: Option<String>,
    /// Time that one command may take.
    deadline: Duration,
}

/// What a command printed in a pod.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Pod {
    /// The pods that the flags name.
    ///
    /// # Errors
    /// A name that Kubernetes does not allow: a sentence with the flag.
    pub(super) fn all(args: &PodArgs) -> Result<Vec<Self>, String> {
        if args.pod.len() > 2 {
            return Err(
                "--pod: at most two pods, the prefill and the decode side\n  fix: give one or two".to_owned()
            );
        }
        let given = [("--namespace", &args.namespace), ("--container", &args.container)];
        let names = args.pod.iter().map(|pod| ("--pod", pod));
        let names = names.chain(given.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?))));
        for (flag, name) in names {
            if !is_kubernetes_name(name) {
                return Err(format!(
                    "{flag}: `{name}` is no name of Kubernetes (lower-case letters, digits, `-` and `.`)\n  fix: copy the name from `kubectl get pods`"
                ));
            }
        }
        if args
            .context
            .as_deref()
            .is_some_and(|context| context.is_empty() || context.contains(char::is_control))
        {
            return Err("--context: not a name\n  fix: choose one of `kubectl config get-contexts -o name`"
                .to_owned());
        }
        let pod = |name: &String| Self {
            name: name.clone(),
            namespace: args.namespace.clone(),
            container: args.container.clone(),
            context: args.context.clone(),
            deadline: args.pod_timeout,
        };
        Ok(args.pod.iter().map(pod).collect())
    }

    /// The container that was named.
    pub(super) fn container(&self) -> Option<&str> {
        self.container.as_deref()
    }

    /// Arguments of kubectl for `command` in this pod. Nothing goes through a shell on this side.
    fn arguments(&self, command: &[&str]) -> Vec<String> {
        let mut arguments = Vec::new();
        // One word each, so that a value can never be read as another flag.
        arguments.extend(self.context.as_ref().map(|context| format!("--context={context}")));
        arguments.extend(self.namespace.as_ref().map(|namespace| format!("--namespace={namespace}")));
        arguments.push("exec".to_owned());
        arguments.push(self.name.clone());
        arguments.extend(self.container.as_ref().map(|container| format!("--container={container}")));
        arguments.push("--".to_owned());
        arguments.extend(command.iter().map(|word| (*word).to_owned()));
        arguments
    }

    /// The command as a person would type it.
    pub(super) fn typed(&self, command: &str) -> String {
        let mut text = self.kubectl();
        text.push_str(&format!(" exec {}", self.name));
        if let Some(container) = &self.container {
            text.push_str(&format!(" -c {container}"));
        }
        format!("{text} -- {command}")
    }

    /// Shell words that print the pod's address.
    pub(super) fn address_command(&self) -> String {
        let mut text = self.kubectl();
        text.push_str(&format!(" get pod {} -o jsonpath='{{.status.podIP}}'", self.name));
        text
    }

    /// kubectl with this pod's cluster and namespace, as a person would type it.
    fn kubectl(&self) -> String {
        let mut text = "kubectl".to_owned();
        if let Some(context) = &self.context {
            text.push_str(&format!(" --context '{}'", context.replace('\'', "'\\''")));
        }
        if let Some(namespace) = &self.namespace {
            text.push_str(&format!(" -n {namespace}"));
        }
        text
    }

    /// The command that copies this machine's `program` into the pod.
    pub(super) fn copy_command(&self, program: &str, to: &str) -> String {
        let mut text = "kubectl".to_owned();
        if let Some(context) = &self.context {
            text.push_str(&format!(" --context '{}'", context.replace('\'', "'\\''")));
        }
        let namespace = self.namespace.as_deref().map_or(String::new(), |namespace| format!("{namespace}/"));
        text.push_str(&format!(" cp \"$(command -v {program})\" {namespace}{}:{to}", self.name));
        if let Some(container) = &self.container {
            text.push_str(&format!(" -c {container}"));
        }
        text
    }

    /// Runs `command` in the pod. A command that ran and failed is an [`Output`] with its exit code.
    ///
    /// # Errors
    /// The finding that says why the pod could not be looked into.
    pub(super) async fn exec(&self, command: &[&str]) -> Result<Output, Box<Finding>> {
        let child = Command::new("kubectl")
            .args(self.arguments(command))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|e| Box::new(self.not_started(&e)))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (stdout, stderr) = tokio::join!(bounded(stdout, CAPTURE_MAX), bounded(stderr, STDERR_MAX));
            (child.wait().await, stdout, stderr)
        };
        // On the deadline the process is killed as it is dropped.
        let Ok((status, stdout, stderr)) = timeout(self.deadline, work).await else {
            return Err(Box::new(self.finding(
                format!("pod {}: no answer within {:?}", self.name, self.deadline),
                &[],
                "see whether the API server and the node's kubelet answer (kubectl get --raw /readyz, kubectl get node); a slow one needs a longer --pod-timeout",
            )));
        };
        let code = status.ok().and_then(|status| status.code()).unwrap_or(-1);
        let output = Output { code, stdout, stderr };
        match self.refusal(&output) {
            Some(finding) => Err(Box::new(finding)),
            None => Ok(output),
        }
    }

    fn finding(&self, title: String, evidence: &[&str], next_step: &str) -> Finding {
        Finding::new(ID, Status::Unknown, title)
            .evidence(evidence.iter().map(|line| (*line).to_owned()))
            .next_step(next_step)
    }

    fn not_started(&self, error: &io::Error) -> Finding {
        if error.kind() == io::ErrorKind::NotFound {
            return self.finding(
                format!("pod {}: there is no kubectl on this machine", self.name),
                &[],
                "install kubectl, or run `kvwire check node` inside the pod",
            );
        }
        self.finding(
            format!("pod {}: kubectl cannot be started: {error}", self.name),
            &[],
            "see that kubectl is executable",
        )
    }

    /// kubectl's own failures, told from those of the command. kubectl ends with 1 for its own, and prints why.
    fn refusal(&self, output: &Output) -> Option<Finding> {
        if output.code == 0 {
            return None;
        }
        let told = output.stderr.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| told.contains(word));
        let lines: Vec<&str> = output.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(4)..];
        let name = &self.name;
        let namespace =
            self.namespace.as_deref().map_or(String::new(), |namespace| format!(" -n {namespace}"));
        if has(&["forbidden", "unauthorized", "you must be logged in"]) {
            return Some(self.finding(
                format!("pod {name}: no permission to run a command in it"),
                last,
                &format!(
                    "ask for the right to create pods/exec: kubectl auth can-i create pods/exec{namespace}"
                ),
            ));
        }
        if has(&["(notfound)", "pods \"", "namespaces \""]) && has(&["not found"]) {
            return Some(self.finding(
                format!("there is no pod {name}"),
                last,
                &format!("see the pods with: kubectl get pods{namespace}"),
            ));
        }
        if has(&["container not found", "is not valid for pod", "container name must be specified"]) {
            return Some(self.finding(
                format!("pod {name}: no such container, or not a running one"),
                last,
                &format!("name one of them with --container: kubectl get pod {name}{namespace} -o jsonpath='{{.spec.containers[*].name}}'"),
            ));
        }
        if has(&[
            "unable to connect",
            "connection refused",
            "no such host",
            "i/o timeout",
            "no configuration",
            "context was not found",
            "does not exist",
        ]) && output.code == 1
        {
            return Some(self.finding(
                format!("pod {name}: kubectl does not reach the cluster"),
                last,
                "see that `kubectl get pods` works here (KUBECONFIG, --context)",
            ));
        }
        if has(&[
            "cannot exec into a container in a completed pod",
            "pod does not have a host assigned",
            "current phase is",
        ]) {
            return Some(self.finding(
                format!("pod {name} is not running"),
                last,
                &format!("see why: kubectl describe pod {name}{namespace}"),
            ));
        }
        None
    }
}

impl Output {
    /// True when the container has no such program.
    pub(super) fn no_program(&self) -> bool {
        NO_PROGRAM.contains(&self.code)
            || self.stderr.contains("executable file not found")
            || self.stderr.contains("no such file or directory")
    }

    /// The last lines of standard error, for evidence.
    pub(super) fn said(&self) -> Vec<String> {
        let lines: Vec<&str> = self.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(4)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(pod: &str) -> PodArgs {
        PodArgs {
            pod: vec![pod.to_owned()],
            namespace: None,
            container: None,
            context: None,
            pod_timeout: Duration::from_secs(20),
        }
    }

    #[test]
    fn arguments_are_words_and_values_stay_with_their_flags() {
        let pods = PodArgs {
            pod: vec!["decode-0".to_owned()],
            namespace: Some("serving".to_owned()),
            container: Some("worker".to_owned()),
            context: Some("user@cluster with space".to_owned()),
            ..args("decode-0")
        };
        let pod = &Pod::all(&pods).unwrap()[0];
        let expected = [
            "--context=user@cluster with space",
            "--namespace=serving",
            "exec",
            "decode-0",
            "--container=worker",
            "--",
            "sh",
            "-c",
            "echo $HOME; x",
        ];
        assert_eq!(pod.arguments(&["sh", "-c", "echo $HOME; x"]), expected);
        assert_eq!(
            pod.typed("kvwire"),
            "kubectl --context 'user@cluster with space' -n serving exec decode-0 -c worker -- kvwire"
        );
        assert_eq!(Pod::all(&args("a")).unwrap()[0].arguments(&["x"]), ["exec", "a", "--", "x"]);
    }

    #[test]
    fn what_is_no_name_never_reaches_kubectl() {
        for name in ["", "-it", "--help", "A", "a b", "a/b", "a;b", "a$(b)", ".a", "a-", "ä"] {
            assert!(Pod::all(&args(name)).unwrap_err().contains("--pod"), "{name}");
        }
        for name in ["decode-0", "a", "vllm-7d9f.x"] {
            assert!(Pod::all(&args(name)).is_ok(), "{name}");
        }
    }

    #[test]
    fn each_refusal_has_its_own_words() {
        let pod = &Pod::all(&args("decode-0")).unwrap()[0];
        for (stderr, words) in [
            ("Error from server (NotFound): pods \"decode-0\" not found", "there is no pod decode-0"),
            ("Error from server (NotFound): namespaces \"x\" not found", "there is no pod"),
            (
                "Error from server (Forbidden): pods \"decode-0\" is forbidden: User \"u\" cannot create resource \"pods/exec\"",
                "no permission",
            ),
            ("error: You must be logged in to the server (Unauthorized)", "no permission"),
            (
                "Error from server (BadRequest): container w is not valid for pod decode-0",
                "no such container",
            ),
            (
                "The connection to the server localhost:8080 was refused - did you specify the right host or port?\nUnable to connect to the server",
                "does not reach",
            ),
            (
                "error: cannot exec into a container in a completed pod; current phase is Succeeded",
                "not running",
            ),
        ] {
            let output = Output { code: 1, stdout: String::new(), stderr: stderr.to_owned() };
            let finding = pod.refusal(&output).unwrap_or_else(|| panic!("{stderr}"));
            assert!(finding.title.contains(words), "{stderr}: {}", finding.title);
            assert!(!finding.next_step.is_empty());
        }
        let own = Output { code: 3, stdout: String::new(), stderr: "noise".to_owned() };
        assert!(pod.refusal(&own).is_none(), "a command's own exit code is no refusal");
    }
}
