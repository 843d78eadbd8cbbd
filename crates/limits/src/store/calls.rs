//! The calls of all instances to a provider that limits them together.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{SharedStore, name};

/// A call that was made. One that stands for several shows only in the provider's count.
#[derive(Clone)]
pub(crate) struct CountedCall {
    /// When it no longer counts.
    pub(crate) end: Instant,
    pub(crate) class: CallClass,
    pub(crate) user: Option<u128>,
    pub(crate) count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallClass {
    Job,
    Sync,
    Request,
}

/// The calls that the server counted last, with the id of the newest one.
pub(crate) struct CallList {
    pub(crate) newest: String,
    pub(crate) calls: VecDeque<CountedCall>,
}

/// What became of a call that was to be counted.
pub(crate) enum Addition {
    /// It is now the newest one, of this id. Without a call to count, nothing has changed.
    Added(String),
    /// Other calls were counted, which the caller has to know first.
    Outdated(CallList),
}

impl SharedStore {
    /// What stands for a user among the calls.
    pub(crate) fn call_user(&self, user: Uuid) -> u128 {
        let tag = self.inner.tag(user.as_bytes());
        u128::from_str_radix(&tag, 16).unwrap_or_default()
    }

    /// Counts a call if `newest` is the newest one there. None if the server is down.
    pub(crate) async fn add_call(
        &self,
        provider: &str,
        newest: &str,
        call: Option<&CountedCall>,
    ) -> Option<Addition> {
        let tag = self.inner.tag(provider.as_bytes());
        let lasts = call.map_or(Duration::ZERO, |call| call.end - Instant::now());
        let mut script = self.inner.add_call.prepare_invoke();
        script.key(name(&tag, "calls")).key(name(&tag, "newest"));
        script
            .arg(newest)
            .arg(call.map_or(String::new(), text))
            .arg(Uuid::new_v4().simple().to_string())
            .arg(lasts.as_micros() as u64);
        let mut connection = self.inner.connection.clone();
        let reply = script.invoke_async::<(u8, String, i64, Vec<(String, i64)>)>(&mut connection);
        let (is_added, newest, server_us, found) = self.inner.call(reply).await?;
        if is_added == 1 {
            return Some(Addition::Added(newest));
        }
        let now = Instant::now();
        let call = |(text, ends_us): (String, i64)| {
            let left_us = ends_us.saturating_sub(server_us);
            let left = Duration::from_micros(u64::try_from(left_us).unwrap_or_default());
            parse(&text, now + left)
        };
        let calls = found.into_iter().filter_map(call).collect();
        Some(Addition::Outdated(CallList { newest, calls }))
    }
}

/// Count, class and user. An id follows, because equal calls are one member of a set.
fn text(call: &CountedCall) -> String {
    let class = match call.class {
        CallClass::Job => "job",
        CallClass::Sync => "sync",
        CallClass::Request => "request",
    };
    let user = call.user.map_or(String::new(), |user| format!("{user:x}"));
    format!("{} {class} {user}", call.count)
}

fn parse(text: &str, end: Instant) -> Option<CountedCall> {
    let mut parts = text.split(' ');
    Some(CountedCall {
        end,
        count: parts.next()?.parse().ok()?,
        class: match parts.next()? {
            "job" => CallClass::Job,
            "sync" => CallClass::Sync,
            _ => CallClass::Request,
        },
        user: u128::from_str_radix(parts.next()?, 16).ok(),
    })
}
