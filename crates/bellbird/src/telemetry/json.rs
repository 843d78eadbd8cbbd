//! Log format with one JSON object per line. It writes directly into the line's buffer: the
//! formatter of tracing-subscriber builds trees of values first, which costs a request 12 %
//! (docs/adr/0014-own-code.md).
//!
//! The lines have the form that tracing-subscriber gives them: the event's fields, then `span` with
//! the name of the innermost span. It also has the fields of the outer ones.

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes `{"timestamp":…,"level":…,"target":…,` and the event's fields.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        write!(
            out,
            "{{\"timestamp\":\"{:.6}\",\"level\":\"{}\",\"target\":\"",
            Timestamp::now(),
            meta.level()
        )?;
        out.write_str(meta.target())?;
        out.write_char('"')?;
        let mut fields = Fields {
            out: &mut out,
            result: Ok(()),
        };
        event.record(&mut fields);
        fields.result?;
        if let Some(span) = context.lookup_current() {
            out.write_str(",\"span\":{\"name\":\"")?;
            out.write_str(span.name())?;
            out.write_char('"')?;
            // A job that a request started shows both ids. One that another job started has the
            // fields of both, so those of the outer one are nested: no object has two members of
            // one name.
            let scope: Vec<_> = span.scope().from_root().collect();
            for (at, span) in scope.iter().enumerate() {
                let extensions = span.extensions();
                let Some(fields) = extensions.get::<FormattedFields<N>>() else {
                    continue;
                };
                if scope[at + 1..]
                    .iter()
                    .any(|inner| inner.name() == span.name())
                {
                    write!(
                        out,
                        ",\"outer_{}\":{{{}}}",
                        span.name(),
                        fields.fields.trim_start_matches(',')
                    )?;
                } else {
                    out.write_str(&fields.fields)?;
                }
            }
            out.write_char('}')?;
        }
        out.write_str("}\n")
    }
}

/// Keeps the fields of a span as the text that follows the span's name.
impl<'w> FormatFields<'w> for JsonLines {
    fn format_fields<R: RecordFields>(&self, mut out: Writer<'w>, all: R) -> fmt::Result {
        let mut fields = Fields {
            out: &mut out,
            result: Ok(()),
        };
        all.record(&mut fields);
        fields.result
    }
}

/// Writes each field after a comma.
struct Fields<'a, 'w> {
    out: &'a mut Writer<'w>,
    result: fmt::Result,
}

impl Fields<'_, '_> {
    fn plain(&mut self, field: &Field, value: impl fmt::Display) {
        self.result = self
            .result
            .and_then(|()| write!(self.out, ",\"{}\":{value}", field.name()));
    }

    fn text(&mut self, field: &Field, value: impl fmt::Display) {
        self.result = self.result.and_then(|()| {
            write!(self.out, ",\"{}\":\"", field.name())?;
            write!(Escaped(self.out), "{value}")?;
            self.out.write_char('"')
        });
    }
}

impl Visit for Fields<'_, '_> {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.plain(field, value);
        } else {
            self.text(field, value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.result = self.result.and_then(|()| {
            self.out.write_str(",\"")?;
            self.out.write_str(field.name())?;
            self.out.write_str("\":\"")?;
            Escaped(self.out).write_str(value)?;
            self.out.write_char('"')
        });
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format_args!("{value:?}"));
    }
}

/// Escapes text for the inside of a JSON string.
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest
            .bytes()
            .position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\')
        {
            self.0.write_str(&rest[..at])?;
            match rest.as_bytes()[at] {
                b'"' => self.0.write_str("\\\"")?,
                b'\\' => self.0.write_str("\\\\")?,
                b'\n' => self.0.write_str("\\n")?,
                control => write!(self.0, "\\u{control:04x}")?,
            }
            rest = &rest[at + 1..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn line_of(log: impl FnOnce()) -> serde_json::Value {
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let layer = layer.event_format(JsonLines).fmt_fields(JsonLines);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let mut bytes = kept.0.lock().unwrap().clone();
        assert_eq!(bytes.pop(), Some(b'\n'));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn every_kind_of_field_is_valid_json() {
        let line = line_of(|| {
            let error = std::io::Error::other("a \"quoted\"\nerror");
            tracing::info!(
                status = 200,
                negative = -1,
                ratio = 0.5,
                nothing = f64::NAN,
                hit = true,
                route = "/v1/\u{1}\\x",
                id = ?Some(7),
                %error,
                "done: {}",
                "grüße"
            );
        });
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["status"], 200);
        assert_eq!(line["negative"], -1);
        assert_eq!(line["ratio"], 0.5);
        assert_eq!(line["nothing"], "NaN");
        assert_eq!(line["hit"], true);
        assert_eq!(line["route"], "/v1/\u{1}\\x");
        assert_eq!(line["id"], "Some(7)");
        assert_eq!(line["error"], "a \"quoted\"\nerror");
        assert_eq!(line["message"], "done: grüße");
        assert!(
            line["timestamp"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .is_ok()
        );
    }

    #[test]
    fn spans_follow_the_fields() {
        let line = line_of(|| {
            let outer = tracing::info_span!(
                "request",
                request_id = "a\"b",
                key_id = tracing::field::Empty
            )
            .entered();
            outer.record("key_id", tracing::field::display("k"));
            let inner = tracing::info_span!("job", job_id = 7).entered();
            tracing::info!(key_id = "of the event", "done");
            drop((inner, outer));
        });
        let span =
            serde_json::json!({"name": "job", "request_id": "a\"b", "key_id": "k", "job_id": 7});
        assert_eq!(line["span"], span);
        assert_eq!(line["key_id"], "of the event");
        assert!(line_of(|| tracing::info!("no span"))["span"].is_null());
        let line = line_of(|| {
            let outer = tracing::info_span!("job", kind = "sync", job_id = 7).entered();
            let inner = tracing::info_span!("job", kind = "refresh", job_id = 8).entered();
            tracing::info!("done");
            drop((inner, outer));
        });
        let outer = serde_json::json!({"kind": "sync", "job_id": 7});
        assert_eq!(
            line["span"],
            serde_json::json!({"name": "job", "kind": "refresh", "job_id": 8, "outer_job": outer})
        );
    }
}
