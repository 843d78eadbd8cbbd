//! JSON Lines: one object of `/v1` a line.

use bellbird_api::http::json::write_json;
use bellbird_api::v1::{HoldingView, TradeView, TransactionView};
use bellbird_domain::{Holding, Trade, Transaction};
use jiff::civil::Date;
use serde::Serialize;

use super::{FormatError, Head, LeftOut, WriteFile};

pub(super) struct Jsonl;

/// The last line of a file that may leave out connections. It has the line even if none is left
/// out, so that a reader always takes the last line away, and misses it in a file that broke off.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LastLine<'l> {
    left_out: &'l [LeftOut],
}

impl WriteFile for Jsonl {
    fn start(&mut self, _head: &Head<'_>, _out: &mut Vec<u8>) -> Result<(), FormatError> {
        Ok(())
    }

    fn transaction(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        TransactionView::new(row, date).write(out);
        out.push(b'\n');
        Ok(())
    }

    fn trade(&mut self, trade: &Trade<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        write_line(&TradeView::new(trade), out);
        Ok(())
    }

    fn holding(&mut self, holding: &Holding<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        write_line(&HoldingView::new(holding), out);
        Ok(())
    }

    fn end(&mut self, _rows: u64, left_out: Option<&[LeftOut]>, out: &mut Vec<u8>) {
        if let Some(left_out) = left_out {
            write_line(&LastLine { left_out }, out);
        }
    }
}

fn write_line(view: &impl Serialize, out: &mut Vec<u8>) {
    write_json(view, out);
    out.push(b'\n');
}
