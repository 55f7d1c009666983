//! `kvwire pair`: both roles on this machine, joined over TCP on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use checks::Node;
use coordinator::{
    Options, Role, RunId, ServerOptions, Session, Store, TcpEndpoint, TcpServer, TcpStore, Token,
};

use super::initiator::Initiator;
use super::message::{Hello, PROTOCOL};
use super::record::Record;
use super::supervisor::{Interrupts, Supervisor};
use super::target::Target;
use crate::cli::PairArgs;
use crate::exit::Exit;
use crate::plan::Plan;
use crate::preflight;
use crate::report::table;
use crate::terminal::Terminal;
use crate::verdict::Outcome;

/// Runs the command. `begin` is when the program started.
pub(crate) fn pair(args: &PairArgs, terminal: &Terminal, begin: Instant) -> Exit {
    let plan = match prepare(args) {
        Ok(plan) => plan,
        Err(message) => {
            terminal.error(&message);
            return Exit::Usage;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            terminal.error(&format!("the system refuses an event loop: {e}"));
            return Exit::Internal;
        }
    };
    match runtime.block_on(both(args, plan, terminal, begin)) {
        Ok((outcome, record)) => finish(args, outcome, &record, terminal),
        Err(message) => {
            terminal.error(&message);
            Exit::Inconclusive
        }
    }
}

/// Everything that can be wrong is found here, before anything is started.
fn prepare(args: &PairArgs) -> Result<Plan, String> {
    let plan = args.measure.plan(Node::available_memory_bytes()).map_err(|e| e.to_string())?;
    preflight::nixl_lib("--nixl-lib", args.measure.nixl_lib.as_ref())?;
    preflight::nixl_lib("--target-nixl-lib", args.target_nixl_lib.as_ref())?;
    preflight::output(args.result.output.as_ref())?;
    Ok(plan)
}

/// Joins both roles and runs them side by side. An error means that not even a result came about.
async fn both(
    args: &PairArgs,
    plan: Plan,
    terminal: &Terminal,
    begin: Instant,
) -> Result<(Outcome, Record), String> {
    let run = RunId::random().map_err(|e| format!("no random run id: {e}"))?;
    let token = Token::random().map_err(|e| format!("no random token: {e}"))?;
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options =
        ServerOptions { token: Some(token.clone()), run: Some(run.clone()), ..ServerOptions::default() };
    let (server, bound) = TcpServer::bind(&[loopback], options).await.map_err(|e| {
        format!("no rendezvous on loopback: {e}\n  fix: see that 127.0.0.1 is up (ip addr show lo)")
    })?;
    let port = bound.first().map_or(0, SocketAddr::port);
    let endpoint = TcpEndpoint {
        host: Ipv4Addr::LOCALHOST.to_string(),
        port,
        token: Some(token),
        run: Some(run.clone()),
    };
    let node = Node::probe(env!("CARGO_PKG_VERSION"));
    let joining = Options::default();
    let local: Arc<dyn Store> =
        Arc::new(server.local(&run, &joining).map_err(|e| format!("the target cannot join: {e}"))?);
    let remote: Arc<dyn Store> = Arc::new(
        TcpStore::connect(&endpoint, &run, &joining)
            .await
            .map_err(|e| format!("the initiator cannot join: {e}"))?,
    );
    let (target, initiator) = tokio::try_join!(
        join(local, Role::Target, &node, &joining),
        join(remote, Role::Initiator, &node, &joining)
    )?;
    let text = |path: &PathBuf| path.display().to_string();
    let nixl_lib = args.measure.nixl_lib.as_ref().map(text);
    let target_nixl_lib = args.target_nixl_lib.as_ref().map(text).or_else(|| nixl_lib.clone());
    let scope = scope(&node);
    let initiator = Initiator {
        supervisor: initiator,
        node: node.clone(),
        nixl_lib,
        terminal: terminal.clone(),
        record: Record::new(run.as_str(), plan.clone(), scope, args.result.output.clone(), begin),
        plan,
    };
    let target = Target::new(target, node, target_nixl_lib, terminal.clone());
    // One task drives both: neither supervisor does any work while the engines measure.
    let (result, _) = tokio::join!(initiator.run(), target.run());
    server.close("the run is over").await;
    Ok(result)
}

async fn join(
    store: Arc<dyn Store>,
    role: Role,
    node: &Node,
    options: &Options,
) -> Result<Supervisor, String> {
    let hello =
        serde_json::to_vec(&Hello { protocol: PROTOCOL, node: node.clone() }).map_err(|e| e.to_string())?;
    let who = format!("{role} on {} (process {})", node.hostname, node.pid);
    let (session, _) = Session::join(store, role, &who, Bytes::from(hello), options)
        .await
        .map_err(|e| format!("the {role} cannot join: {e}"))?;
    let interrupts = Interrupts::new().map_err(|e| format!("the system refuses a signal handler: {e}"))?;
    Ok(Supervisor { session, interrupts, engine: None })
}

/// What a run of this command can say at most.
fn scope(node: &Node) -> String {
    format!(
        "two processes on one host ({}), host memory, uniform blocks; nothing is said about the network between \
         two hosts, nor about which wire UCX chose",
        node.hostname
    )
}

/// Prints the result and decides the exit code.
fn finish(args: &PairArgs, outcome: Outcome, record: &Record, terminal: &Terminal) -> Exit {
    let printed = if args.output.json {
        serde_json::to_string_pretty(&record.result).map(|text| text + "\n").map_err(|e| e.to_string())
    } else {
        Ok(table::render(&record.result, terminal.color_on_stdout(), terminal.width()))
    };
    match printed.and_then(|text| terminal.result(&text).map_err(|e| e.to_string())) {
        Ok(()) => outcome.exit(),
        Err(e) => {
            terminal.error(&format!("the result cannot be printed: {e}"));
            outcome.max(Outcome::Internal).exit()
        }
    }
}
