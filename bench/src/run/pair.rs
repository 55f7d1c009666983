//! `kvwire pair`: both roles on this machine, joined over TCP on loopback.

use std::net::Ipv4Addr;
use std::time::Instant;

use checks::Node;
use coordinator::{Endpoint, Options, Role, TcpEndpoint, Token};

use super::finish::{Ending, block_on, no_signals};
use super::initiator::Initiator;
use super::join::{Missed, identity, join};
use super::record::Record;
use super::rendezvous::Rendezvous;
use super::scope::Scope;
use super::supervisor::Interrupts;
use super::target::{Keeping, Target};
use crate::cli::{PairArgs, text_of};
use crate::exit::Exit;
use crate::plan::Plan;
use crate::preflight;
use crate::terminal::Terminal;

/// Runs the command. `begin` is when the program started.
pub(crate) fn pair(args: &PairArgs, terminal: &Terminal, begin: Instant) -> Exit {
    let ending = Ending::new(&args.output, &args.result);
    let terminal = &ending.terminal(terminal);
    match prepare(args) {
        Ok(plan) => block_on(terminal, both(args, plan, terminal, begin)),
        Err(message) => ending.usage(terminal, &message),
    }
}

/// Everything that can be wrong is found here, before anything is started.
fn prepare(args: &PairArgs) -> Result<Plan, String> {
    let plan = args.measure.plan(&args.nixl, Node::available_memory_bytes()).map_err(|e| e.to_string())?;
    preflight::nixl_lib("--nixl-lib", args.nixl.nixl_lib.as_ref())?;
    preflight::nixl_lib("--target-nixl-lib", args.target_nixl_lib.as_ref())?;
    preflight::output(args.result.output.as_ref())?;
    Ok(plan)
}

/// Joins both roles and runs them side by side.
async fn both(args: &PairArgs, plan: Plan, terminal: &Terminal, begin: Instant) -> Exit {
    let node = Node::probe(env!("CARGO_PKG_VERSION"));
    let who = format!("the target {}", identity(&node));
    let options = Options::default();
    let interrupts = match Interrupts::new("run") {
        Ok(interrupts) => interrupts,
        Err(e) => return no_signals(terminal, &e),
    };
    let served = async {
        // With a token and a run of its own, no other process of this host can join.
        let token = Token::random().map_err(|e| format!("no random token: {e}"))?;
        let loopback =
            TcpEndpoint { host: Ipv4Addr::LOCALHOST.to_string(), port: 0, token: Some(token), run: None };
        let endpoint = Endpoint::Tcp(loopback);
        let target = Rendezvous::at_target(&endpoint, None, options.clone(), &who, false).await?;
        let address = target.join_address(&endpoint, None).ok_or("no address to join")?;
        let address = address.parse().map_err(|e| format!("{address}: {e}"))?;
        let initiator = Rendezvous::at_initiator(&address, None, options, false)?;
        Ok::<_, String>((target, initiator))
    };
    let (at_target, at_initiator) = match served.await {
        Ok(both) => both,
        Err(message) => {
            terminal.error(&message);
            return Exit::Inconclusive;
        }
    };
    let nixl_lib = text_of(args.nixl.nixl_lib.as_ref());
    let target_nixl_lib = text_of(args.target_nixl_lib.as_ref()).or_else(|| nixl_lib.clone());
    let run = at_target.run.clone();
    let record = Record::new(
        run.as_str(),
        plan.clone(),
        Scope::of_pair(&node, &plan),
        args.result.output.clone(),
        begin,
    );
    let target = async {
        let met = join(&at_target, Role::Target, &node, true, interrupts.clone()).await?;
        // The initiator keeps the one result of both.
        let keeping = Keeping { run: run.clone(), output: None, begin };
        Ok::<_, Missed>(Target::new(met, target_nixl_lib, terminal.clone(), keeping).run().await)
    };
    let initiator = async {
        match join(&at_initiator, Role::Initiator, &node, true, interrupts.clone()).await {
            Ok(met) => Initiator::new(met, nixl_lib, terminal.clone(), record, plan).run().await,
            Err(Missed { stop, at }) => {
                let mut record = record;
                (record.close_with(&stop, &at.to_string()), record)
            }
        }
    };
    // One thread drives both: neither supervisor does any work while the engines measure.
    let ((outcome, record), _) = tokio::join!(initiator, target);
    at_target.close("the run is over").await;
    Ending::new(&args.output, &args.result).with(outcome, &record, terminal)
}
