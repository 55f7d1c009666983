//! What the processes of a running pod were started with: their command lines and environments, as a shell in the pod
//! reads them from `/proc`.

use crate::node::{Entry, Evidence};

/// Processes of a pod that are looked at: its first one, and those that may be an engine.
const PROCESSES_MAX: usize = 16;
/// Variables of one process that are looked at.
const VARIABLES_MAX: usize = 5_000;
/// What stands for a new line within a value on its way out of the pod, where a line is a value.
const NEW_LINE: char = '\u{1}';

/// The processes of one pod that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodProcesses {
    /// Name of the pod.
    pub pod: String,
    /// Container that was looked into; `None` for the pod's first one.
    pub container: Option<String>,
    /// By process id.
    pub(super) processes: Vec<Process>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    /// Its id, as the pod counts.
    pub id: u32,
    /// Its arguments, the program first.
    pub command: Vec<String>,
    /// The environment that it was started with; `None` when it may not be read.
    pub environment: Option<Vec<(String, String)>>,
}

impl PodProcesses {
    /// From what [`process_script`] printed in the pod.
    pub fn new(pod: &str, container: Option<&str>, evidence: &Evidence) -> Self {
        let mut processes: Vec<Process> =
            evidence.below("/proc").filter_map(|(path, entry)| process(path, entry, evidence)).collect();
        processes.sort_by_key(|process| process.id);
        processes.truncate(PROCESSES_MAX);
        Self { pod: pod.to_owned(), container: container.map(str::to_owned), processes }
    }
}

fn process(path: &str, entry: &Entry, evidence: &Evidence) -> Option<Process> {
    let id = path.strip_prefix("/proc/")?.strip_suffix("/cmdline")?.parse().ok()?;
    let command: Vec<String> = values(entry)?.collect();
    let environment = evidence.get(&format!("/proc/{id}/environ")).and_then(values).map(|values| {
        values.filter_map(|value| variable(&value)).take(VARIABLES_MAX).collect::<Vec<(String, String)>>()
    });
    Some(Process { id, command, environment })
}

fn values(entry: &Entry) -> Option<impl Iterator<Item = String>> {
    let Entry::Text(text) = entry else { return None };
    let lines = text.split('\n').map(|line| line.replace(NEW_LINE, "\n"));
    Some(lines.filter(|line| !line.is_empty()))
}

/// A process that writes its state over its arguments (as `ps` shows it) may leave anything here.
fn variable(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (!name.is_empty() && name.chars().all(good)).then(|| (name.to_owned(), value.to_owned()))
}

/// The script that prints, in the pod, command line and environment of its first process and of those that may be an
/// engine, in the form of a capture. It only reads. Processes of other containers (a host's or shared process-id
/// namespace) are known by their mount namespace and left out. `$KVWIRE_ROOT` names another root directory (for tests).
pub fn process_script() -> String {
    format!("MOST={PROCESSES_MAX}\n{SCRIPT}")
}

const SCRIPT: &str = r#"LC_ALL=C; export LC_ALL; R=${KVWIRE_ROOT:-}
echo 'kvwire.capture/1 shell'
values() { tr '\000\012' '\012\001' 2>/dev/null <"$1" | sed 's/^/ /'; echo; }
own=$(readlink "$R/proc/self/ns/mnt" 2>/dev/null)
list=; first=
for p in "$R"/proc/[0-9]*; do i=${p##*/}
 case $i in *[!0-9]*|$$) continue;; esac
 n=$(readlink "$p/ns/mnt" 2>/dev/null)
 [ -n "$own" ] && [ -n "$n" ] && [ "$n" != "$own" ] && continue
 c=; { IFS= read -r c <"$p/cmdline"; } 2>/dev/null; [ -n "$c" ] || continue
 case $c in *vllm*|*VLLM*|*sglang*|*trtllm*|*tensorrt_llm*|*dynamo*) list="$list $i";; esac
 if [ -z "$first" ] || [ "$i" -lt "$first" ]; then first=$i; fi
done
seen=; count=0
for i in $first $list; do
 case " $seen " in *" $i "*) continue;; esac
 seen="$seen $i"; count=$((count+1)); [ "$count" -gt "$MOST" ] && break
 echo "T /proc/$i/cmdline"; values "$R/proc/$i/cmdline"
 if { true <"$R/proc/$i/environ"; } 2>/dev/null; then echo "T /proc/$i/environ"; values "$R/proc/$i/environ"
 else echo "P /proc/$i/environ"; fi
done
echo E
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_new_lines_and_what_is_no_variable_is_left_out() {
        let text = "kvwire.capture/1 shell\nT /proc/1/cmdline\n sh\n -c\n a\u{1}b\n\nT /proc/1/environ\n A=1\n B=x\u{1}y=z\n junk\n =\n C=\n\n\
                    T /proc/12/cmdline\n vllm\n\nP /proc/12/environ\nE\n";
        let read = PodProcesses::new("a", None, &Evidence::from_capture(text).unwrap());
        assert_eq!(read.processes.iter().map(|process| process.id).collect::<Vec<_>>(), [1, 12]);
        assert_eq!(read.processes[0].command, ["sh", "-c", "a\nb"]);
        let variables = [("A", "1"), ("B", "x\ny=z"), ("C", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(read.processes[0].environment, Some(variables.to_vec()));
        assert_eq!(read.processes[1].environment, None);
    }
}
