//! JSON Lines: one object of `/v1` a line.

use bellbird_api::http::json::write_json;
use bellbird_api::v1::TransactionView;
use bellbird_domain::Transaction;
use jiff::civil::Date;
use serde::Serialize;

use super::{FormatError, Head, LeftOut, WriteTransactions};

pub(super) struct Transactions;

impl WriteTransactions for Transactions {
    fn start(&mut self, _head: &Head<'_>, _out: &mut Vec<u8>) -> Result<(), FormatError> {
        Ok(())
    }

    fn row(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        TransactionView::new(row, date).write(out);
        out.push(b'\n');
        Ok(())
    }

    fn end(&mut self, _rows: u64, left_out: Option<&[LeftOut]>, out: &mut Vec<u8>) {
        write_left_out(left_out, out);
    }
}

/// The last line of a file that may leave out connections. It has the line even if none is left
/// out, so that a reader always takes the last line away, and misses it in a file that broke off.
pub(super) fn write_left_out(left_out: Option<&[LeftOut]>, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct LastLine<'l> {
        left_out: &'l [LeftOut],
    }
    if let Some(left_out) = left_out {
        write_json(&LastLine { left_out }, out);
        out.push(b'\n');
    }
}
