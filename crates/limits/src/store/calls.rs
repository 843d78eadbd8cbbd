//! The calls of all instances to a provider that limits them together.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{SharedStore, name};
use crate::call_window::{CallKind, Correction, JOB_TENTHS, REQUEST_TENTHS, Refused};

impl SharedStore {
    /// Counts a call, unless it must wait. None if the server is down.
    pub(crate) async fn take_call(
        &self,
        provider: &str,
        per_minute: u64,
        kind: CallKind,
        user: Option<Uuid>,
        correction: Option<Correction>,
    ) -> Option<Result<(), Refused>> {
        let kind = match kind {
            CallKind::Job => "job",
            CallKind::SyncRefresh => "refresh",
            CallKind::Sync => "sync",
            CallKind::Request {
                has_share: false, ..
            } => "unshared",
            CallKind::Request { begins: true, .. } => "begins",
            CallKind::Request { begins: false, .. } => "continues",
        };
        let user = user.map_or(String::new(), |user| self.inner.tag(user.as_bytes()));
        let lasts = correction.map_or(Duration::ZERO, |correction| {
            correction.until - Instant::now()
        });
        let count = correction
            .filter(|_| !lasts.is_zero())
            .map_or(0, |correction| correction.count);
        let mut call = self.inner.take_call.prepare_invoke();
        call.key(name(&self.inner.tag(provider.as_bytes()), "calls"))
            .arg(per_minute)
            .arg(JOB_TENTHS);
        call.arg(REQUEST_TENTHS)
            .arg(kind)
            .arg(user)
            .arg(Uuid::new_v4().simple().to_string());
        call.arg(count).arg(lasts.as_micros() as u64);
        let mut connection = self.inner.connection.clone();
        let reply = self
            .inner
            .call(call.invoke_async::<(u8, u8, u64)>(&mut connection))
            .await?;
        let (is_allowed, by_all, wait_us) = reply;
        let refused = Refused {
            wait: Duration::from_micros(wait_us),
            by_all: by_all == 1,
        };
        Some(if is_allowed == 1 {
            Ok(())
        } else {
            Err(refused)
        })
    }
}
