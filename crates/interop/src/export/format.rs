//! Stand-in.
use bellbird_domain::{ConnectionCategory, Holding, Trade, Transaction};
use bellbird_requests::views::TransactionView;
use jiff::civil::Date;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Transactions,
    Trades,
    Holdings,
}

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::Trades => "trades",
            Self::Holdings => "holdings",
        }
    }

    pub fn category(self) -> ConnectionCategory {
        match self {
            Self::Transactions => ConnectionCategory::Banking,
            Self::Trades | Self::Holdings => ConnectionCategory::Brokerage,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFormat {
    pub resource: Resource,
}

impl FileFormat {
    pub fn extension(self) -> &'static str {
        "jsonl"
    }
}

pub(crate) struct Writer;

impl Writer {
    pub(crate) fn new(_: FileFormat) -> Self {
        Self
    }
    pub(crate) fn start(&mut self, _: &mut Vec<u8>) {}
    pub(crate) fn end(&mut self, _: &mut Vec<u8>) {}
    pub(crate) fn transaction(&mut self, row: &Transaction<'_>, day: Date, out: &mut Vec<u8>) {
        TransactionView::new(row, day).write(out);
        out.push(b'\n');
    }
    pub(crate) fn trade(&mut self, _: &Trade<'_>, _: &mut Vec<u8>) {}
    pub(crate) fn holding(&self, _: &Holding<'_>, _: &mut Vec<u8>) {}
}
