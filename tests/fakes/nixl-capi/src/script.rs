//! The faults that a test asks for.
//!
//! `KVWIRE_FAKE_NIXL` holds a comma list of them. Each may end in `@after=N`: it then holds from the moment when N
//! transfers have been posted by this process; in `@marked`: it then holds only for transfers that kvwire marks by their
//! notification; and in `@rank=N`: it then holds only in the process whose agent's name ends in that number. A word that is not
//! understood ends the process, because a test that misspells a fault must not pass.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable that is read once, before the first call that can fail.
pub(crate) const VARIABLE: &str = "KVWIRE_FAKE_NIXL";

/// Names a file whose bytes are given as the agent's metadata.
pub(crate) const METADATA_VARIABLE: &str = "KVWIRE_FAKE_NIXL_METADATA";

/// Metadata that a test wants instead of the agent's own.
pub(crate) fn metadata() -> Option<Vec<u8>> {
    let path = std::env::var_os(METADATA_VARIABLE)?;
    let bytes = std::fs::read(&path);
    Some(bytes.unwrap_or_else(|error| misspelt(&format!("{METADATA_VARIABLE}: {error}"))))
}

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    CreateAgent(i32),
    CreateBackend(i32),
    NoUcx,
    Register(i32),
    LoadRemote(i32),
    Prep(i32),
    Make(i32),
    Post(i32),
    Poll(i32),
    GetNotifs(i32),
    /// Posted, and in progress for ever.
    Stall,
    /// Claims success and moves nothing.
    Drop,
    /// Flips one bit at this offset of the transfer's bytes.
    Corrupt(usize),
    /// Moves the bytes and loses the notification.
    Mute,
    /// Exchanges the bytes of the first two descriptors, or of the two halves of a single one.
    Swap,
    /// Leaves the last quarter unmoved.
    Short,
    /// Delivers the bytes of the first transfer of the same size.
    Stale,
    /// Completes only after so many microseconds.
    Slow(u64),
    /// Completes and notifies at once, and the bytes come so many microseconds later.
    Late(u64),
    /// Never returns from this call.
    Hang(Call),
    /// Ends the process inside post.
    Abort,
    /// Crashes when the process leaves by `exit`.
    ExitCrash,
    /// Completes inside post, without moving anything and without notifications.
    Free,
}

/// A call that can be made to hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    CreateBackend,
    LoadRemote,
    Post,
}

/// Stays here for ever when the script says that this call hangs.
pub(crate) fn hang(call: Call) {
    if active(|fault| (fault == Fault::Hang(call)).then_some(())).is_some() {
        loop {
            std::thread::park();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    fault: Fault,
    after: u64,
    marked: bool,
    rank: Option<u64>,
}

/// A post of this process: how many there were before it, and whether its notification marks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) index: u64,
    pub(crate) marked: bool,
}

static RULES: RwLock<Option<Vec<Rule>>> = RwLock::new(None);
static POSTS: AtomicU64 = AtomicU64::new(0);
/// The number at the end of the agent's name; none is `NO_RANK`.
static RANK: AtomicU64 = AtomicU64::new(NO_RANK);
const NO_RANK: u64 = u64::MAX;

/// Takes the rank from the name of this process's agent.
pub(crate) fn name_agent(name: &str) {
    let rank = name.rsplit('-').next().and_then(|end| end.parse().ok()).unwrap_or(NO_RANK);
    RANK.store(rank, Ordering::Relaxed);
}

/// How the notification of a marked transfer begins.
const MARK: &[u8] = b"kvwire-mark ";

/// Counts one post, with its notification.
pub(crate) fn count_post(notification: Option<&[u8]>) -> Post {
    let marked = notification.is_some_and(|message| message.starts_with(MARK));
    Post { index: POSTS.fetch_add(1, Ordering::Relaxed), marked }
}

/// The first fault that holds now and that `pick` wants, outside of a transfer.
pub(crate) fn active<T>(pick: impl Fn(Fault) -> Option<T>) -> Option<T> {
    active_at(Post { index: POSTS.load(Ordering::Relaxed), marked: false }, pick)
}

/// The same for this post.
pub(crate) fn active_at<T>(post: Post, pick: impl Fn(Fault) -> Option<T>) -> Option<T> {
    if let Some(rules) = read().as_deref() {
        return choose(rules, post, pick);
    }
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let rules = parse(&text).unwrap_or_else(|error| misspelt(&error));
    let chosen = choose(&rules, post, pick);
    replace(rules);
    chosen
}

/// Replaces the script of this process and starts to count posts anew.
pub(crate) fn set(text: &str) {
    replace(parse(text).unwrap_or_else(|error| misspelt(&error)));
    POSTS.store(0, Ordering::Relaxed);
}

fn read() -> std::sync::RwLockReadGuard<'static, Option<Vec<Rule>>> {
    RULES.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn replace(rules: Vec<Rule>) {
    *RULES.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(rules);
}

fn choose<T>(rules: &[Rule], post: Post, pick: impl Fn(Fault) -> Option<T>) -> Option<T> {
    let now = |rule: &&Rule| post.index >= rule.after && (post.marked || !rule.marked);
    let here = |rule: &&Rule| rule.rank.is_none_or(|rank| rank == RANK.load(Ordering::Relaxed));
    rules.iter().filter(now).filter(here).find_map(|rule| pick(rule.fault))
}

fn misspelt(error: &str) -> ! {
    crate::say(&format!("{VARIABLE}: {error}"));
    std::process::abort()
}

fn parse(text: &str) -> Result<Vec<Rule>, String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(rule).collect()
}

fn rule(word: &str) -> Result<Rule, String> {
    let (rest, rank) = match word.split_once("@rank=") {
        Some((rest, rank)) => (rest, Some(number(word, rank)?)),
        None => (word, None),
    };
    let (rest, marked) = match rest.strip_suffix("@marked") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let (fault, after) = match rest.split_once("@after=") {
        Some((fault, after)) => (fault, number(word, after)?),
        None => (rest, 0),
    };
    Ok(Rule { fault: self::fault(word, fault)?, after, marked, rank })
}

fn fault(word: &str, text: &str) -> Result<Fault, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Ok(match text {
            "no_ucx" => Fault::NoUcx,
            "stall" => Fault::Stall,
            "drop" => Fault::Drop,
            "mute" => Fault::Mute,
            "swap" => Fault::Swap,
            "short" => Fault::Short,
            "stale" => Fault::Stale,
            "abort" => Fault::Abort,
            "exit_crash" => Fault::ExitCrash,
            "free" => Fault::Free,
            _ => return Err(format!("unknown fault `{word}`")),
        });
    };
    Ok(match name {
        "create_agent" => Fault::CreateAgent(number(word, value)?),
        "create_backend" => Fault::CreateBackend(number(word, value)?),
        "register" => Fault::Register(number(word, value)?),
        "load_remote" => Fault::LoadRemote(number(word, value)?),
        "prep" => Fault::Prep(number(word, value)?),
        "make" => Fault::Make(number(word, value)?),
        "post" => Fault::Post(number(word, value)?),
        "poll" => Fault::Poll(number(word, value)?),
        "get_notifs" => Fault::GetNotifs(number(word, value)?),
        "corrupt" => Fault::Corrupt(number(word, value)?),
        "slow" => Fault::Slow(number(word, value)?),
        "late" => Fault::Late(number(word, value)?),
        "hang" => Fault::Hang(match value {
            "create_backend" => Call::CreateBackend,
            "load_remote" => Call::LoadRemote,
            "post" => Call::Post,
            _ => return Err(format!("no call `{value}` can be made to hang, in `{word}`")),
        }),
        _ => return Err(format!("unknown fault `{word}`")),
    })
}

fn number<T: std::str::FromStr>(word: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{value}` in `{word}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_with_and_without_a_start() {
        assert_eq!(
            parse("post=-2@after=3, stall ,corrupt=17@rank=1,drop@after=6@marked@rank=2").unwrap(),
            [
                Rule { fault: Fault::Post(-2), after: 3, marked: false, rank: None },
                Rule { fault: Fault::Stall, after: 0, marked: false, rank: None },
                Rule { fault: Fault::Corrupt(17), after: 0, marked: false, rank: Some(1) },
                Rule { fault: Fault::Drop, after: 6, marked: true, rank: Some(2) },
            ]
        );
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn a_misspelt_word_is_refused_by_name() {
        for (text, quoted) in [
            ("stal", "`stal`"),
            ("post", "`post`"),
            ("post=x", "`post=x`"),
            ("stall@after=", "`stall@after=`"),
            ("stall=1", "`stall=1`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(quoted), "{text}: {error}");
        }
    }

    #[test]
    fn a_fault_holds_from_its_post_on() {
        let rules = parse("stall@after=2").unwrap();
        let stalls = |index| {
            let post = Post { index, marked: false };
            choose(&rules, post, |fault| (fault == Fault::Stall).then_some(())).is_some()
        };
        assert!(!stalls(1));
        assert!(stalls(2));
    }

    #[test]
    fn a_fault_of_marked_transfers_spares_the_others() {
        let rules = parse("late=5@marked").unwrap();
        let late = |marked| {
            let post = Post { index: 0, marked };
            choose(&rules, post, |fault| (fault == Fault::Late(5)).then_some(())).is_some()
        };
        assert!(late(true) && !late(false));
    }
}
