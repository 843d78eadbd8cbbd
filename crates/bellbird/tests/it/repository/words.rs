//! The project speaks the field's language: docs/glossary.md.

use std::collections::BTreeMap;

use super::{assert_none, read, root, texts};

/// Words in a sense that the project has given up, each with the field's word. `*` stands for any ending.
const OLD: [(&str, &str); 79] = [
    ("trip", "link session"),
    ("trips", "link session"),
    ("depart*", "start, authorization request"),
    ("arriv*", "callback, return, appear"),
    ("way back", "callback"),
    ("come back", "callback, return"),
    ("comes back", "callback, return"),
    ("came back", "callback, return"),
    ("address of a link", "link URL"),
    ("asked for", "requested"),
    ("link address", "link URL"),
    ("send off", "start"),
    ("sent off", "start"),
    ("look", "refresh, poll, check"),
    ("looks at", "refresh, poll, check"),
    ("looked at", "refresh, poll, check"),
    ("looking at", "refresh, poll, check"),
    ("look* into", "poll, check"),
    ("look* after", "refresh"),
    ("adopt*", "import"),
    ("take* over", "import, apply"),
    ("taken over", "import, apply"),
    ("take* in", "import, apply"),
    ("taken in", "import, apply"),
    ("grant", "credentials"),
    ("grants", "credentials"),
    ("owner", "provider user"),
    ("owners", "provider user"),
    ("standing", "consent status"),
    ("standings", "consent status"),
    ("concern*", "affected, provider event"),
    ("notifying", "webhook verifier"),
    ("outgoing", "webhook event"),
    ("outbox", "webhook event"),
    ("a mark", "fingerprint, cursor, logo"),
    ("the mark", "fingerprint, cursor, logo"),
    ("row marks", "fingerprints"),
    ("marks of", "fingerprints of"),
    ("tell", "deliver, notify, report, log"),
    ("tells", "reports, says, shows"),
    ("told", "delivered, notified, reported, logged"),
    ("due work", "job"),
    ("what is due", "job"),
    ("overtake*", "lease lost"),
    ("spread", "jitter"),
    ("is passing", "transient"),
    ("is lasting", "permanent"),
    ("settles", "backfill window"),
    ("settling", "backfill window"),
    ("last words", "shutdown grace period"),
    ("a turn", "batch, time slice"),
    ("believe*", "trust, accept"),
    ("goes on", "continues, retries"),
    ("holds for", "applies to"),
    ("take* turns", "alternate"),
    ("live place", "permit"),
    ("forget*", "delete, evict, purge"),
    ("forgot*", "delete, evict, purge"),
    ("tidy", "cleanup"),
    ("tidied", "cleanup"),
    ("tidies", "cleanup"),
    ("refus*", "reject"),
    ("sync problem", "last error"),
    ("last problem", "last error"),
    ("copy of the service", "instance"),
    ("copies of the service", "instances"),
    ("other copies", "other instances"),
    ("another copy", "another instance"),
    ("each copy", "each instance"),
    ("every copy", "every instance"),
    ("several copies", "several instances"),
    ("sync window", "date range"),
    ("window of a sync", "date range"),
    ("pretend*", "simulated, sandbox"),
    ("who hosts", "operator"),
    ("whoever", "operator, user, client"),
    ("somebody", "user, client, caller"),
    ("nobody", "no user, none"),
    ("scope", "connection context"),
];

/// Phrases in which such a word has its usual sense.
const USUAL: [&str; 9] = [
    "connection refused",
    "refused connection",
    "look up",
    "looks up",
    "look like",
    "standing order",
    "standing orders",
    "round trip",
    "grant type",
];

/// Where such a word belongs to others: a wire protocol, a bank's text, a technique by its usual name.
const QUOTED: [(&str, &str); 18] = [
    // tokio's task-local values and tracing's spans.
    ("crates/api/src/front/log.rs", "scope"),
    ("crates/bellbird/src/telemetry/json.rs", "scope"),
    ("crates/providers/src/akahu/", "grant"),
    ("crates/providers/src/akahu/", "scope"),
    ("docs/providers/akahu.md", "grant"),
    ("docs/providers/akahu.md", "scope"),
    ("sandbox/src/akahu/", "grant"),
    ("sandbox/src/akahu/", "scope"),
    ("sandbox/src/fiskil/token.rs", "scope"),
    ("sandbox/tests/it/", "grant"),
    ("sandbox/tests/it/", "scope"),
    ("crates/bellbird/tests/it/linking/sessions.rs", "scope"),
    // MCP's `cacheScope`.
    ("crates/bellbird/tests/it/mcp/protocol.rs", "scope"),
    ("crates/interop/src/mcp/mod.rs", "scope"),
    ("crates/webhooks/src/payload/tests.rs", "outgoing"),
    ("sandbox/src/fiskil/rows.rs", "outgoing"),
    ("sandbox/src/world/merchants.rs", "depart*"),
    ("docs/adr/0008-events-without-rows.md", "outbox"),
];

/// Files that speak about words.
const ABOUT_WORDS: [&str; 2] = ["crates/bellbird/tests/it/repository/words.rs", "docs/glossary.md"];

#[test]
fn old_words_are_gone() {
    let mut found = Vec::new();
    for path in texts().into_iter().filter(|path| !ABOUT_WORDS.contains(&path.as_str())) {
        let quoted = |phrase: &str| QUOTED.iter().any(|(place, word)| path.starts_with(place) && *word == phrase);
        for (at, line) in read(&root().join(&path)).lines().enumerate() {
            for (phrase, instead) in old_words(line).filter(|(phrase, _)| !quoted(phrase)) {
                found.push(format!("{path}:{}: `{phrase}`: {instead}", at + 1));
            }
        }
    }
    assert_none(&found, "use the field's word (docs/glossary.md):");
}

fn old_words(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = words(line);
    let mut usual = vec![false; words.len()];
    for phrase in USUAL {
        for at in positions(&words, phrase) {
            usual[at..at + phrase.split(' ').count()].fill(true);
        }
    }
    OLD.into_iter().filter(move |(phrase, _)| positions(&words, phrase).any(|at| !usual[at]))
}

/// Where a phrase begins.
fn positions<'a>(words: &'a [String], phrase: &'a str) -> impl Iterator<Item = usize> + 'a {
    let parts: Vec<&str> = phrase.split(' ').collect();
    let is = |word: &String, part: &str| match part.strip_suffix('*') {
        Some(start) => word.starts_with(start),
        None => word == part,
    };
    let count = parts.len();
    let matches = move |at: &usize| parts.iter().zip(&words[*at..]).all(|(part, word)| is(word, part));
    (0..(words.len() + 1).saturating_sub(count)).filter(matches)
}

/// The words of a line in lower case; `lookAt`, `look_at` and `look at` are the same two.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in line.chars() {
        if !c.is_alphabetic() || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c.is_alphabetic() {
            words.last_mut().expect("one").extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn names_are_read_as_words() {
    assert_eq!(words("look_at(LookAt::Now), LOOK 2at"), ["look", "at", "look", "at", "now", "look", "at"]);
    let words = words("they looked at it");
    assert_eq!(positions(&words, "look* at").collect::<Vec<_>>(), [1]);
    assert_eq!(positions(&words, "it was").count(), 0);
}

#[test]
fn exceptions_are_needed() {
    let mut left: BTreeMap<(&str, &str), usize> = QUOTED.into_iter().map(|exception| (exception, 0)).collect();
    for path in texts() {
        let exceptions = QUOTED.into_iter().filter(|(place, _)| path.starts_with(place)).collect::<Vec<_>>();
        if exceptions.is_empty() {
            continue;
        }
        for line in read(&root().join(&path)).lines() {
            for (phrase, _) in old_words(line) {
                for exception in exceptions.iter().filter(|(_, word)| *word == phrase) {
                    *left.entry(*exception).or_default() += 1;
                }
            }
        }
    }
    let unused = left.iter().filter(|(_, count)| **count == 0).map(|((place, word), _)| format!("{place}: {word}"));
    assert_none(&unused.collect::<Vec<String>>(), "nothing needs this exception any more:");
}
