//! JSON Lines: one object of `/v1` a line.

use bellbird_api::v1::TransactionView;
use bellbird_domain::Transaction;
use jiff::civil::Date;

use super::{FormatError, Head, WriteTransactions};

pub(super) struct Transactions;

impl WriteTransactions for Transactions {
    fn start(&mut self, _head: &Head<'_>, _out: &mut Vec<u8>) -> Result<(), FormatError> {
        Ok(())
    }

    fn row(&mut self, row: &Transaction<'_>, date: Date, out: &mut Vec<u8>) -> Result<(), FormatError> {
        TransactionView::new(row, date).write(out);
        out.push(b'\n');
        Ok(())
    }
}
