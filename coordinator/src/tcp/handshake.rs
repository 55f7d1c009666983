//! Mutual proof of the token.
//!
//! ```text
//! client  hello      version, nonce, has a token?
//! server  challenge  version, nonce, needs a token?
//! client  proof      run, HMAC(token, "client", both nonces, run), lease to resume
//! server  welcome    HMAC(token, "server", both nonces, run), lease
//! ```
//! The client proves first: a stranger who dials the server gets nothing to guess a weak token
//! from. The server must prove it too, or a stranger on its port could feed the client metadata.
//! From the welcome on, frames are tagged with keys derived from the token and both nonces.

use super::frame::Seal;
use super::link::{Incoming, LinkError, Outgoing};
use super::message::{ClientHello, ClientProof, MAGIC, Refusal, Resume, ServerGreeting, VERSION, Welcome};
use crate::error::ConnectError;
use crate::hex;
use crate::key::RunId;
use crate::random::random_bytes;
use crate::token::{Token, equal};

use tokio::io::{AsyncRead, AsyncWrite};

type Nonce = [u8; 32];

/// Both nonces and the run: what every proof and key of one connection is bound to.
pub(crate) struct Transcript {
    client: Nonce,
    server: Nonce,
    run: String,
}

impl Transcript {
    fn mac(&self, token: &Token, label: &str) -> [u8; 32] {
        let label = format!("{MAGIC}/{VERSION} {label}");
        token.mac(&[label.as_bytes(), &self.client, &self.server, self.run.as_bytes()])
    }

    /// Proof of the named side, hexadecimal; empty without a token.
    fn proof(&self, token: Option<&Token>, side: &str) -> String {
        token.map(|t| hex::encode(&self.mac(t, side))).unwrap_or_default()
    }

    fn holds(&self, token: Option<&Token>, side: &str, proof: &str) -> bool {
        equal(self.proof(token, side).as_bytes(), proof.as_bytes())
    }

    /// Seal for the frames of the named side.
    fn seal(&self, token: Option<&Token>, side: &str) -> Option<Seal> {
        token.map(|t| Seal::new(self.mac(t, &format!("{side} frames"))))
    }
}

/// The seals of a connection, ours and the other side's.
pub(crate) struct Seals {
    pub(crate) client: Option<Seal>,
    pub(crate) server: Option<Seal>,
}

impl Seals {
    fn of(transcript: &Transcript, token: Option<&Token>) -> Self {
        Self { client: transcript.seal(token, "client"), server: transcript.seal(token, "server") }
    }
}

/// What the client wants of the server.
pub(crate) struct Wish<'a> {
    pub(crate) addr: &'a str,
    pub(crate) run: &'a RunId,
    pub(crate) token: Option<&'a Token>,
    pub(crate) ttl_ms: u64,
    pub(crate) resume: Option<Resume>,
}

/// The client's part.
pub(crate) async fn enter<R, W>(
    incoming: &mut Incoming<R>,
    outgoing: &mut Outgoing<W>,
    wish: Wish<'_>,
) -> Result<(Welcome, Seals), ConnectError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let client: Nonce = random_bytes().map_err(|e| io_error(wish.addr, &e.to_string()))?;
    let hello = ClientHello {
        magic: MAGIC.into(),
        version: VERSION,
        nonce: hex::encode(&client),
        token: wish.token.is_some(),
    };
    send(outgoing, &wish, &hello).await?;
    let server = challenged(receive(incoming, &wish).await?, &wish)?;
    let transcript = Transcript { client, server, run: wish.run.as_str().to_owned() };
    let proof = ClientProof {
        run: transcript.run.clone(),
        proof: transcript.proof(wish.token, "client"),
        ttl_ms: wish.ttl_ms,
        resume: wish.resume.clone(),
    };
    send(outgoing, &wish, &proof).await?;
    let ServerGreeting::Welcome(welcome) = receive(incoming, &wish).await? else {
        return Err(not_kvwire(wish.addr, "it repeated its challenge"));
    };
    if !transcript.holds(wish.token, "server", &welcome.proof) {
        return Err(ConnectError::ServerUnproven { addr: wish.addr.into(), detail: "its proof is wrong" });
    }
    Ok((welcome, Seals::of(&transcript, wish.token)))
}

fn challenged(greeting: ServerGreeting, wish: &Wish<'_>) -> Result<Nonce, ConnectError> {
    let ServerGreeting::Challenge { magic, version, nonce, token } = greeting else {
        return Err(ConnectError::ServerUnproven { addr: wish.addr.into(), detail: "it sent no challenge" });
    };
    if magic != MAGIC {
        return Err(not_kvwire(wish.addr, "it greets in another protocol"));
    }
    if version != VERSION {
        return Err(ConnectError::Version { addr: wish.addr.into(), ours: VERSION, theirs: version });
    }
    match (wish.token.is_some(), token) {
        (true, false) => {
            Err(ConnectError::ServerUnproven { addr: wish.addr.into(), detail: "it has no token" })
        }
        (false, true) => Err(ConnectError::TokenNeeded { addr: wish.addr.into() }),
        _ => hex::decode(&nonce).ok_or_else(|| not_kvwire(wish.addr, "its challenge is malformed")),
    }
}

async fn send<W: AsyncWrite + Unpin, T: serde::Serialize>(
    outgoing: &mut Outgoing<W>,
    wish: &Wish<'_>,
    message: &T,
) -> Result<(), ConnectError> {
    outgoing.send(message, &[]).await.map_err(|e| io_error(wish.addr, &e.to_string()))
}

/// The server's next word; a refusal becomes the error that it means.
async fn receive<R: AsyncRead + Unpin>(
    incoming: &mut Incoming<R>,
    wish: &Wish<'_>,
) -> Result<ServerGreeting, ConnectError> {
    let addr = wish.addr;
    let greeting = match incoming.message::<ServerGreeting>().await {
        Ok((greeting, _)) => greeting,
        Err(LinkError::Io(e)) => return Err(io_error(addr, &e.to_string())),
        Err(LinkError::Closed) if incoming.quote().is_empty() => {
            return Err(not_kvwire(addr, "it closed the connection without a word"));
        }
        Err(LinkError::Closed) => return Err(io_error(addr, "closed during the handshake")),
        Err(_) => return Err(not_kvwire(addr, &format!("it said {:?}", incoming.quote()))),
    };
    let ServerGreeting::Refused { magic, version, code, text } = greeting else {
        return Ok(greeting);
    };
    let addr = addr.to_owned();
    Err(match code {
        _ if magic != MAGIC => not_kvwire(&addr, "it greets in another protocol"),
        Refusal::Version => ConnectError::Version { addr, ours: VERSION, theirs: version },
        Refusal::WrongToken => ConnectError::WrongToken { addr },
        Refusal::TokenNeeded => ConnectError::TokenNeeded { addr },
        Refusal::OtherRun => {
            ConnectError::OtherRun { addr, run: wish.run.to_string(), detail: printable(&text) }
        }
        Refusal::Full => ConnectError::Full { addr, detail: printable(&text) },
        Refusal::LeaseGone => ConnectError::LeaseGone { addr },
        Refusal::Malformed => {
            io_error(&addr, &format!("the server did not understand: {}", printable(&text)))
        }
    })
}

fn io_error(addr: &str, detail: &str) -> ConnectError {
    ConnectError::Io { addr: addr.into(), detail: detail.into() }
}

fn not_kvwire(addr: &str, detail: &str) -> ConnectError {
    ConnectError::NotKvwire { addr: addr.into(), detail: detail.into() }
}

/// Text of a side that has proved nothing yet: no control characters, not long.
fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { '.' } else { c }).collect()
}

/// Why the server turns a client away.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) code: Refusal,
    pub(crate) text: String,
}

impl Rejection {
    pub(crate) fn new(code: Refusal, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Tells the client, as well as that still goes.
    pub(crate) async fn send<W: AsyncWrite + Unpin>(&self, outgoing: &mut Outgoing<W>) {
        let refused = ServerGreeting::Refused {
            magic: MAGIC.into(),
            version: VERSION,
            code: self.code,
            text: self.text.clone(),
        };
        // The server has already said its own part; a client that is gone needs no answer.
        let _ = outgoing.send(&refused, &[]).await;
        outgoing.finish().await;
    }
}

/// A client that has proved itself, before it is given a lease.
pub(crate) struct Entrant {
    pub(crate) run: RunId,
    pub(crate) ttl_ms: u64,
    pub(crate) resume: Option<Resume>,
    pub(crate) seals: Seals,
    /// The server's own proof, for the welcome.
    pub(crate) proof: String,
}

/// The server's part, up to the welcome.
pub(crate) async fn admit<R, W>(
    incoming: &mut Incoming<R>,
    outgoing: &mut Outgoing<W>,
    token: Option<&Token>,
) -> Result<Entrant, Rejection>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let malformed = |e: LinkError| Rejection::new(Refusal::Malformed, e.to_string());
    let (hello, _) = incoming.message::<ClientHello>().await.map_err(malformed)?;
    if hello.magic != MAGIC {
        return Err(Rejection::new(Refusal::Malformed, "not a kvwire client"));
    }
    if hello.version != VERSION {
        let text = format!("the client speaks protocol {}, this server {VERSION}", hello.version);
        return Err(Rejection::new(Refusal::Version, text));
    }
    let client = hex::decode(&hello.nonce).ok_or_else(|| Rejection::new(Refusal::Malformed, "nonce"))?;
    let server: Nonce = random_bytes().map_err(|e| Rejection::new(Refusal::Malformed, e.to_string()))?;
    let challenge = ServerGreeting::Challenge {
        magic: MAGIC.into(),
        version: VERSION,
        nonce: hex::encode(&server),
        token: token.is_some(),
    };
    outgoing.send(&challenge, &[]).await.map_err(malformed)?;
    if token.is_some() && !hello.token {
        return Err(Rejection::new(Refusal::TokenNeeded, "the client has no token"));
    }
    let (proof, _) = incoming.message::<ClientProof>().await.map_err(malformed)?;
    let transcript = Transcript { client, server, run: proof.run.clone() };
    if !transcript.holds(token, "client", &proof.proof) {
        return Err(Rejection::new(Refusal::WrongToken, "the client's token is not this run's token"));
    }
    let run = proof
        .run
        .parse()
        .map_err(|e: crate::key::RunIdError| Rejection::new(Refusal::Malformed, e.to_string()))?;
    Ok(Entrant {
        run,
        ttl_ms: proof.ttl_ms,
        resume: proof.resume,
        proof: transcript.proof(token, "server"),
        seals: Seals::of(&transcript, token),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use crate::tcp::frame::encode;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    /// Frames made of near-messages, so that the parsers behind the framing are reached too.
    fn near_frames() -> impl Strategy<Value = Vec<u8>> {
        let word = "[a-z0-9\"{}:,-]{0,40}";
        let header = (word, 0u32..3, any::<bool>()).prop_map(|(word, version, token)| {
            let nonce = "ab".repeat(32);
            format!(
                r#"{{"magic":"{MAGIC}","say":"challenge","version":{version},"nonce":"{nonce}","token":{token},"run":"r","proof":"{}","ttl_ms":1}}"#,
                word.replace('"', "")
            )
        });
        prop::collection::vec(header, 0..4).prop_map(|headers| {
            let frame = |h: &String| encode(h.as_bytes(), &[], None).unwrap().to_vec();
            headers.iter().flat_map(frame).collect()
        })
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            near_frames(),
            prop::collection::vec(any::<u8>(), 0..300),
            (near_frames(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(a, b)| [a, b].concat()),
        ]
    }

    async fn said(bytes: &[u8]) -> (Incoming<tokio::io::DuplexStream>, Outgoing<tokio::io::Sink>) {
        let (mut far, near) = tokio::io::duplex(1 << 16);
        far.write_all(bytes).await.unwrap();
        drop(far);
        (Incoming::new(near), Outgoing::new(tokio::io::sink()))
    }

    proptest! {
        #[test]
        fn no_bytes_get_into_a_server_with_a_token(bytes in bytes()) {
            let token: Token = "a-token-of-the-run".parse().unwrap();
            let admitted = run(async {
                let (mut incoming, mut outgoing) = said(&bytes).await;
                admit(&mut incoming, &mut outgoing, Some(&token)).await.is_ok()
            });
            prop_assert!(!admitted);
        }

        #[test]
        fn no_bytes_pass_for_a_server_that_knows_the_token(bytes in bytes()) {
            let token: Token = "a-token-of-the-run".parse().unwrap();
            let entered = run(async {
                let (mut incoming, mut outgoing) = said(&bytes).await;
                let run_id = "r".parse().unwrap();
                let wish = Wish { addr: "x", run: &run_id, token: Some(&token), ttl_ms: 1, resume: None };
                enter(&mut incoming, &mut outgoing, wish).await.is_ok()
            });
            prop_assert!(!entered);
        }
    }

    #[test]
    fn both_sides_with_the_token_meet_and_no_others() {
        let meet = |ours: &str, theirs: &str| {
            let (ours, theirs): (Token, Token) = (ours.parse().unwrap(), theirs.parse().unwrap());
            run(async move {
                let ((a, b), (c, d)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
                let (mut server_in, mut server_out) = (Incoming::new(a), Outgoing::new(c));
                let (mut client_in, mut client_out) = (Incoming::new(d), Outgoing::new(b));
                let run_id = "r".parse().unwrap();
                let wish = Wish { addr: "x", run: &run_id, token: Some(&ours), ttl_ms: 1, resume: None };
                let server = async {
                    match admit(&mut server_in, &mut server_out, Some(&theirs)).await {
                        Ok(entrant) => {
                            let welcome = Welcome {
                                proof: entrant.proof,
                                lease: 1,
                                secret: String::new(),
                                ttl_ms: 1,
                                max_value: 1,
                                host: String::new(),
                            };
                            server_out.send(&ServerGreeting::Welcome(welcome), &[]).await.unwrap();
                            true
                        }
                        Err(rejection) => {
                            rejection.send(&mut server_out).await;
                            false
                        }
                    }
                };
                let (admitted, entered) = tokio::join!(server, enter(&mut client_in, &mut client_out, wish));
                (admitted, entered.map(|_| ()))
            })
        };
        assert_eq!(meet("a-token-of-the-run", "a-token-of-the-run"), (true, Ok(())));
        let wrong = Err(ConnectError::WrongToken { addr: "x".into() });
        assert_eq!(meet("a-token-of-the-run", "another-token-here"), (false, wrong));
    }
}
