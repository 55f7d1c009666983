//! What is never shown: values that look like credentials.

/// What stands in place of a hidden value.
pub(super) const HIDDEN: &str = "(hidden: looks like a credential)";

/// The value of a variable as it may be shown.
pub(super) fn value(name: &str, value: &str) -> String {
    if is_secret_name(name) || is_credential(value) {
        return HIDDEN.to_owned();
    }
    text(value)
}

/// Free text with everything in it hidden that looks like a credential.
pub fn text(text: &str) -> String {
    let is_boundary = |c: char| c.is_whitespace() || "\"'`,;()[]{}<>".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    // `--api-key VALUE`: the flag says what the next word is.
    let mut after_flag = false;
    for c in text.chars().chain([' ']) {
        if !is_boundary(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            if after_flag && !word.starts_with('-') {
                out.push_str(HIDDEN);
            } else {
                push_word(&mut out, &word);
            }
            after_flag = word.starts_with("--") && !word.contains('=') && is_secret_name(&word);
            word.clear();
        }
        out.push(c);
    }
    // The space that ended the last word.
    out.pop();
    out
}

fn push_word(out: &mut String, word: &str) {
    // A digest or commit in an image name is public.
    if word.contains("sha256:") || word.contains("sha-") {
        out.push_str(word);
        return;
    }
    let assigned = word.split_once('=').filter(|(name, v)| !v.is_empty() && is_secret_name(name));
    if let Some((name, _)) = assigned {
        out.push_str(name);
        out.push('=');
        out.push_str(HIDDEN);
    } else if is_credential(word) || word.split(['=', ':', '/', '@']).any(is_credential) {
        out.push_str(HIDDEN);
    } else {
        out.push_str(word);
    }
}

/// A line of a manifest as it may be shown.
pub(super) fn line(line: &str) -> String {
    let trimmed = line.trim_start().trim_start_matches("- ");
    if let Some((key, rest)) = trimmed.split_once(':') {
        let key = key.trim().trim_matches(['"', '\'']);
        if is_secret_name(key) && !rest.trim().is_empty() && !is_reference(key) {
            let indent = &line[..line.len() - line.trim_start().len()];
            return format!("{indent}{key}: {HIDDEN}");
        }
    }
    text(line)
}

/// Keys of Kubernetes that name a Secret without holding one.
fn is_reference(key: &str) -> bool {
    matches!(
        key,
        "secretKeyRef"
            | "secretRef"
            | "secretName"
            | "key"
            | "envFromSecret"
            | "imagePullSecrets"
            | "tokenizer-mode"
    )
}

/// True for a name whose value is not for others.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase().replace('-', "_");
    let words: Vec<&str> = name.split('_').collect();
    let has = |word: &str| words.contains(&word);
    // IB_PKEY names a partition and SSH_KEY_PATH a file; a KEY alone at the end is a key.
    let file = words.last().is_some_and(|w| matches!(*w, "PATH" | "FILE" | "DIR" | "NAME" | "REF"));
    !file
        && (has("TOKEN")
            || has("SECRET")
            || has("PASSWORD")
            || has("PASSWD")
            || has("PASSPHRASE")
            || has("CREDENTIAL")
            || has("CREDENTIALS")
            || has("APIKEY")
            || (words.len() > 1 && words.last() == Some(&"KEY"))
            || name == "AUTH")
}

/// True for text that has the form of a known kind of credential.
pub(super) fn is_credential(text: &str) -> bool {
    let prefixed = |prefix: &str, rest: usize| text.starts_with(prefix) && text.len() >= prefix.len() + rest;
    // Wherever it stands: in a broken file anything may stand in front of it.
    let inside = |prefix: &str| {
        text.split(prefix).skip(1).any(|rest| {
            rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"_-".contains(b)).count() >= 10
        })
    };
    if ["hf_", "ghp_", "gho_", "ghs_", "glpat-", "nvapi-", "xoxb-", "xoxp-", "pypi-", "github_pat_"]
        .iter()
        .any(|p| inside(p))
        || prefixed("sk-", 10)
        || (prefixed("AKIA", 16) && text.len() == 20)
        || (prefixed("eyJ", 20) && text.contains('.'))
        || text.contains("-----BEGIN")
    {
        return true;
    }
    if let Some((_, after)) = text.split_once("://")
        && let Some((user, _)) = after.split('/').next().unwrap_or("").rsplit_once('@')
        && user.contains(':')
    {
        return true;
    }
    is_random(text)
}

/// Long, without separators, and a mix of all kinds of characters as keys in base64 are.
fn is_random(text: &str) -> bool {
    let long = text.len() >= 32 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+=_".contains(&b));
    long && text.bytes().filter(u8::is_ascii_digit).count() >= 4
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && (text.bytes().any(|b| b.is_ascii_uppercase()) || text.bytes().all(|b| b.is_ascii_hexdigit()))
        && !text.contains("__")
}
