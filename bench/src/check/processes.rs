//! The environment of the processes in a pod, through kubectl.

use checks::Finding;
use checks::env::{PodProcesses, process_script};
use checks::node::Evidence;

use super::kubectl::Pod;
use super::node::{garbled, no_shell};

/// Reads the processes of each pod, and says of the others why they could not be read.
pub(super) async fn read_all(pods: &[Pod]) -> (Vec<PodProcesses>, Vec<Finding>) {
    let (mut read, mut failed) = (Vec::new(), Vec::new());
    for pod in pods {
        match read_pod(pod).await {
            Ok(processes) => read.push(processes),
            Err(finding) => failed.push(*finding),
        }
    }
    (read, failed)
}

/// One command in the pod reads everything.
async fn read_pod(pod: &Pod) -> Result<PodProcesses, Box<Finding>> {
    let output = pod.exec(&["sh", "-c", &process_script()]).await?;
    if output.no_program() {
        return Err(Box::new(no_shell(pod, &output)));
    }
    let evidence = Evidence::from_capture(&output.stdout)
        .map_err(|error| Box::new(garbled(pod, &output, &error.to_string())))?;
    Ok(PodProcesses::new(&pod.name, pod.container(), &evidence))
}
