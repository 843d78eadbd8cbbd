//! Open Financial Exchange 1.0.3: the form that GnuCash, KMyMoney, Skrooge, Actual, ofxtools and
//! ofxparse all read whole.
//!
//! The header says UTF-8, every tag is closed, and days have no time, because readers shift times
//! by their own timezone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellbird_domain::{Account, AccountType, Currency, Transaction};
use jiff::civil::Date;

use super::amounts::{known, require_currency};
use super::text::{cut, key, line, one_line, payee, write};
use super::{FormatError, Head, LeftOut, WriteFile};

const HEADER: &str = "OFXHEADER:100\nDATA:OFXSGML\nVERSION:103\nSECURITY:NONE\nENCODING:UTF-8\nCHARSET:NONE\n\
                      COMPRESSION:NONE\nOLDFILEUID:NONE\nNEWFILEUID:NONE\n\n";
const STATUS_OK: &str = "<STATUS><CODE>0</CODE><SEVERITY>INFO</SEVERITY></STATUS>";
/// The bank of every account. Programs recognise an account by this and its id, so it must not
/// change.
const BANK_ID: &str = "BELLBIRD";

// Limits of the standard, in characters.
const ORGANISATION_MAX: usize = 32;
const NAME_MAX: usize = 32;
const MEMO_MAX: usize = 255;
const ID_MAX: usize = 255;

#[derive(Default)]
pub(super) struct Ofx {
    currency: Option<Currency>,
    /// What follows the rows.
    rest: String,
}

impl WriteFile for Ofx {
    fn start(&mut self, head: &Head<'_>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let account = head.account.ok_or(FormatError::OneAccount)?;
        let balance = head.balance.ok_or(FormatError::NoBalance)?;
        let amount = balance.current.as_ref().ok_or(FormatError::NoBalance)?;
        let currency = known(account.currency).or(balance.currency.and_then(known));
        if balance
            .currency
            .and_then(known)
            .is_some_and(|other| Some(other) != currency)
        {
            return Err(FormatError::NoBalance);
        }
        self.currency = currency;
        let organisation = one_line(account.institution_name.as_deref().unwrap_or_default());
        let organisation = match cut(&organisation, ORGANISATION_MAX) {
            "" => String::new(),
            name => format!("<FI><ORG>{}</ORG></FI>", escape(name)),
        };
        let Statement {
            set,
            response,
            statement,
            account,
        } = Statement::of(account);
        let now = head.read_at.strftime("%Y%m%d%H%M%S");
        let currency = currency.unwrap_or(Currency::UNKNOWN);
        let (first, last) = head.days;
        let first = day(first.unwrap_or(Date::constant(1970, 1, 1)));
        let (last, today) = (day(last.unwrap_or(head.today)), day(head.today));
        line(
            format_args!(
                "{HEADER}<OFX><SIGNONMSGSRSV1><SONRS>{STATUS_OK}<DTSERVER>{now}</DTSERVER>\
                 <LANGUAGE>ENG</LANGUAGE>{organisation}</SONRS></SIGNONMSGSRSV1>\n\
                 <{set}><{response}><TRNUID>0</TRNUID>{STATUS_OK}\
                 <{statement}><CURDEF>{currency}</CURDEF>{account}\n\
                 <BANKTRANLIST><DTSTART>{first}</DTSTART><DTEND>{last}</DTEND>"
            ),
            out,
        );
        self.rest = format!(
            "</BANKTRANLIST><LEDGERBAL><BALAMT>{amount}</BALAMT><DTASOF>{today}</DTASOF>\
             </LEDGERBAL></{statement}></{response}></{set}></OFX>\n"
        );
        Ok(())
    }

    fn transaction(
        &mut self,
        row: &Transaction<'_>,
        date: Date,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        require_currency(self.currency, row.currency.and_then(known))?;
        let kind = if row.amount.is_negative() {
            "DEBIT"
        } else {
            "CREDIT"
        };
        let is_plain = |character: char| !character.is_control() && !character.is_whitespace();
        let (id, amount) = (key(&row.id, ID_MAX, is_plain), &row.amount);
        write(
            format_args!(
                "<STMTTRN><TRNTYPE>{kind}</TRNTYPE><DTPOSTED>{}</DTPOSTED><TRNAMT>{amount}</TRNAMT>\
                 <FITID>{}</FITID>",
                day(date),
                escape(&id)
            ),
            out,
        );
        let (name, memo) = (payee(row), one_line(&row.description));
        for (name, value, chars) in [("NAME", name, NAME_MAX), ("MEMO", memo, MEMO_MAX)] {
            if !value.is_empty() {
                let value = escape(cut(&value, chars).trim_end());
                write(format_args!("<{name}>{value}</{name}>"), out);
            }
        }
        line(format_args!("</STMTTRN>"), out);
        Ok(())
    }

    fn end(&mut self, _rows: u64, _left_out: Option<&[LeftOut]>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.rest.as_bytes());
    }
}

/// The elements around an account's rows.
struct Statement {
    set: &'static str,
    response: &'static str,
    statement: &'static str,
    account: String,
}

impl Statement {
    fn of(account: &Account) -> Self {
        // The standard allows 22 characters, which is what the 16 bytes of the id take.
        let id = URL_SAFE_NO_PAD.encode(account.id.uuid().as_bytes());
        let account_type = match account.account_type {
            AccountType::CreditCard => {
                return Self {
                    set: "CREDITCARDMSGSRSV1",
                    response: "CCSTMTTRNRS",
                    statement: "CCSTMTRS",
                    account: format!("<CCACCTFROM><ACCTID>{id}</ACCTID></CCACCTFROM>"),
                };
            }
            AccountType::Savings | AccountType::TermDeposit => "SAVINGS",
            AccountType::Loan => "CREDITLINE",
            AccountType::Transaction | AccountType::Investment | AccountType::Other => "CHECKING",
        };
        Self {
            set: "BANKMSGSRSV1",
            response: "STMTTRNRS",
            statement: "STMTRS",
            account: format!(
                "<BANKACCTFROM><BANKID>{BANK_ID}</BANKID><ACCTID>{id}</ACCTID><ACCTTYPE>{account_type}</ACCTTYPE>\
                 </BANKACCTFROM>"
            ),
        }
    }
}

/// Eight digits without a time.
fn day(date: Date) -> String {
    format!("{:04}{:02}{:02}", date.year(), date.month(), date.day())
}

fn escape(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(['&', '<', '>']) {
        return text.into();
    }
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;").into()
}
