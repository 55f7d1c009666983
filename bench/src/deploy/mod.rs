//! `kvwire deploy` and `kvwire collect`: two pods by one Job, and what they found, through the user's kubectl.

mod collect;
mod embedded;
mod install;
mod job;
pub(crate) mod kubectl;
mod logs;
mod overlay;
mod settings;

use crate::cli::{CollectArgs, DeleteArgs, DeployArgs, DeployCommand, JobArgs, RenderArgs, WaitArgs};
use crate::exit::Exit;
use crate::terminal::Terminal;
pub(crate) use install::install;
use job::Job;
use kubectl::Kubectl;
use overlay::Overlay;

/// Every kind that a run may consist of and every cluster knows, for deletion.
const KINDS: &str = "job,service,configmap,secret,deployment,networkpolicy";
/// The kind that only clusters with NVIDIA's DRA driver know.
const COMPUTE_DOMAIN: &str = "computedomains.resource.nvidia.com";

/// Runs `kvwire deploy`.
pub(crate) fn run(args: &DeployArgs) -> Exit {
    match &args.command {
        DeployCommand::Render(args) => {
            let terminal = Terminal::new(&args.output);
            ended(&terminal, render(args, &terminal))
        }
        DeployCommand::Apply(args) => {
            let terminal = Terminal::new(&args.output);
            ended(&terminal, apply(args, &terminal))
        }
        DeployCommand::Wait(args) => {
            let terminal = Terminal::new(&args.output);
            ended(&terminal, wait(args, &terminal))
        }
        DeployCommand::Collect(args) => collect(args),
        DeployCommand::Delete(args) => {
            let terminal = Terminal::new(&args.output);
            ended(&terminal, delete(args, &terminal))
        }
    }
}

/// Runs `kvwire collect`.
pub(crate) fn collect(args: &CollectArgs) -> Exit {
    let terminal = Terminal::new(&args.wait.output);
    let work = async {
        let job = Job::new(&args.wait.job)?;
        collect::collect(&job, args, &terminal).await
    };
    ended(&terminal, work)
}

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Problem {
    message: String,
    exit: Exit,
}

impl Problem {
    fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: Exit::Usage }
    }

    /// The cluster, or kubectl, does not do its part: nothing is said about the wire.
    fn cluster(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: Exit::Inconclusive }
    }

    fn internal(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: Exit::Internal }
    }
}

fn ended(terminal: &Terminal, work: impl Future<Output = Result<Exit, Problem>>) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            terminal.error(&format!("the system refuses an event loop: {e}"));
            return Exit::Internal;
        }
    };
    runtime.block_on(work).unwrap_or_else(|problem| {
        terminal.error(&problem.message);
        problem.exit
    })
}

fn cluster(args: &JobArgs) -> Result<Kubectl, Problem> {
    Kubectl::new(args.context.as_deref(), args.namespace.as_deref()).map_err(Problem::usage)
}

async fn render(args: &RenderArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    let manifests = Overlay::of(args)?.build(&cluster(&args.job)?).await?;
    match terminal.result(&manifests) {
        Ok(()) => Ok(Exit::Trusted),
        Err(e) => Err(Problem::internal(format!("standard output cannot be written: {e}"))),
    }
}

async fn apply(args: &RenderArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    let kubectl = cluster(&args.job)?;
    let manifests = Overlay::of(args)?.build(&kubectl).await?;
    // A Job cannot be changed once it is there.
    let job = &args.job.job;
    let old = ["delete", "job", job, "--ignore-not-found", "--wait", "--cascade=foreground"];
    let deleted = kubectl.call(&old, "").await.map_err(Problem::cluster)?;
    let applied = kubectl.call(&["apply", "--filename=-"], &manifests).await.map_err(Problem::cluster)?;
    terminal.note((deleted + &applied).trim_end());
    terminal.note(&format!("next: kvwire collect --job {job}{}", kubectl.typed_namespace()));
    Ok(Exit::Trusted)
}

async fn wait(args: &WaitArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    let job = Job::new(&args.job)?;
    let ended = job.wait(args.timeout, terminal, |_| {}).await?;
    ended.pods.iter().for_each(|pod| terminal.note(&pod.ending()));
    Ok(ended.exit())
}

async fn delete(args: &DeleteArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    let kubectl = cluster(&args.job)?;
    let job = &args.job.job;
    overlay::job_suffix(job)?;
    let belongs = format!("--selector=app.kubernetes.io/part-of=kvwire,app.kubernetes.io/instance={job}");
    let mut said = kubectl.call(&["delete", KINDS, &belongs], "").await.map_err(Problem::cluster)?;
    // Most clusters do not know this kind; where it is known, its objects go as well.
    if let Ok(more) = kubectl.call(&["delete", COMPUTE_DOMAIN, &belongs], "").await {
        said += &more;
    }
    terminal.note(said.trim_end());
    Ok(Exit::Trusted)
}
