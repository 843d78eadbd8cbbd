//! Maps SnapTrade's wire types to the types of the domain. Pure functions.

use std::borrow::Cow;
use std::collections::HashMap;

use bellbird_domain::holding::{Multiplier, PositionValue, value_position};
use bellbird_domain::{
    Account, AccountType, Balance, ConnectionStatus, Currency, Decimal, Holding, MaskedNumber,
    Trade, TradeTime, TradeType,
};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use super::wire;
use crate::exact::{self, ExactNumber};
use crate::rows::Skipped;
use crate::text::{Text, currency, non_blank};
use crate::unreadable::UnreadableReason;
use crate::{ConsentStatus, Error, FoundAccount};

/// A response with more positions than this is rejected as malformed.
const POSITIONS_MAX: usize = 10_000;

/// The status of a connection. The provider serves the last data of a disabled one
/// (docs/providers/snaptrade.md#disabled-connections).
pub(super) fn consent_status(connection: &wire::Connection) -> ConsentStatus {
    if connection.disabled.unwrap_or(false) {
        ConsentStatus::Broken(ConnectionStatus::Invalidated)
    } else {
        ConsentStatus::Active
    }
}

pub(super) fn name_and_logo(brokerage: wire::Brokerage) -> (String, Option<String>) {
    let first = |texts: [Option<String>; 2]| {
        texts
            .into_iter()
            .flatten()
            .find(|text| !text.trim().is_empty())
    };
    let name =
        first([brokerage.display_name, brokerage.name]).unwrap_or_else(|| "Brokerage".to_owned());
    (
        name,
        first([brokerage.aws_s3_square_logo_url, brokerage.aws_s3_logo_url]),
    )
}

/// Maps an account and masks its number. The full number goes no further.
pub(super) fn account(row: &wire::Account<'_>) -> FoundAccount {
    let number = row
        .number
        .as_ref()
        .and_then(|number| MaskedNumber::mask(number.as_str()));
    FoundAccount {
        provider_account_id: row.id.as_str().to_owned(),
        name: account_name(row),
        account_type: account_type(row.account_category.as_ref().map(Text::as_str)),
        number,
        currency: total(row).and_then(|total| currency(total.currency.as_ref())),
    }
}

/// The name of an account, or else its institution and raw type. Some brokers put the account
/// number into the name, so it is masked there too.
fn account_name(row: &wire::Account<'_>) -> String {
    let plain = |text: &Option<Text<'_>>| {
        let text = text.as_ref()?.as_str().trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let named = plain(&row.name).or_else(|| {
        let parts: Vec<String> = [&row.institution_name, &row.raw_type]
            .into_iter()
            .filter_map(plain)
            .collect();
        Some(parts.join(" ")).filter(|name| !name.is_empty())
    });
    let mut name = named.unwrap_or_else(|| "Account".to_owned());
    for number in [&row.number, &row.institution_account_id]
        .into_iter()
        .filter_map(plain)
    {
        name = MaskedNumber::hide_in(&name, &number);
    }
    name
}

fn account_type(category: Option<&str>) -> AccountType {
    match category {
        Some("INVESTMENT" | "ANNUITY") | None => AccountType::Investment,
        Some("DEPOSIT") => AccountType::Transaction,
        Some("LOC") => AccountType::Loan,
        Some(_) => AccountType::Other,
    }
}

fn total<'r, 'a>(row: &'r wire::Account<'a>) -> Option<&'r wire::Total<'a>> {
    row.balance.as_ref()?.total.as_ref()
}

/// An amount with its currency.
pub(super) struct Money {
    amount: Option<Decimal<'static>>,
    /// None if it is absent, [`Currency::UNKNOWN`] if it is not an ISO 4217 code.
    currency: Option<Currency>,
}

/// The total value of an account. None if it is absent.
pub(super) fn total_of(row: &wire::Account<'_>) -> Result<Option<Money>, Error> {
    total(row)
        .map(|total| money(total.amount.as_ref(), total.currency.as_ref()))
        .transpose()
}

pub(super) fn cash(row: &wire::Balance<'_>) -> Result<Money, Error> {
    money(
        row.cash.as_ref(),
        row.currency
            .as_ref()
            .and_then(|currency| currency.code.as_ref()),
    )
}

fn money(amount: Option<&ExactNumber<'_>>, code: Option<&Text<'_>>) -> Result<Money, Error> {
    let currency = code.filter(|code| !code.as_str().is_empty());
    let currency = currency.map(|code| Currency::parse(code.as_str()).unwrap_or(Currency::UNKNOWN));
    Ok(Money {
        amount: exact::owned_amount(amount)?,
        currency,
    })
}

/// The balance of an account: its total value, and as available the cash in its own currency.
pub(super) fn balance(account: &Account, total: Option<Money>, cash: Vec<Money>) -> Balance {
    let currency = total
        .as_ref()
        .and_then(|total| total.currency)
        .unwrap_or(account.currency);
    let currency = Some(currency).filter(|currency| *currency != Currency::UNKNOWN);
    let own = cash
        .into_iter()
        .find(|cash| currency.is_some() && cash.currency == currency);
    Balance {
        current: total.and_then(|total| total.amount),
        available: own.and_then(|cash| cash.amount),
        currency,
    }
}

/// Maps the positions of an account in their order. `skipped` gets the reason for each position
/// that is left out. An amount that is not a decimal fails the whole response, since its other
/// amounts cannot be trusted either.
pub(super) fn holdings<'a>(
    positions: Vec<wire::Position<'a>>,
    account: &'a Account,
    mut skipped: impl FnMut(&'static str),
) -> Result<Vec<Holding<'a>>, Error> {
    if positions.len() > POSITIONS_MAX {
        return Err(Error::Malformed("too many positions"));
    }
    let mut seen: HashMap<Cow<'a, str>, u32> = HashMap::new();
    let mut holdings = Vec::with_capacity(positions.len());
    for position in positions {
        match holding(position, account)? {
            Ok(mut holding) => {
                let occurrences = seen.entry(holding.instrument_id.clone()).or_default();
                *occurrences += 1;
                holding.occurrence = *occurrences;
                holdings.push(holding);
            }
            Err(reason) => skipped(reason),
        }
    }
    Ok(holdings)
}

fn holding<'a>(
    position: wire::Position<'a>,
    account: &'a Account,
) -> Result<Result<Holding<'a>, &'static str>, Error> {
    let quantity = exact::amount(position.units.as_ref())?;
    let current_price = exact::amount(position.price.as_ref())?;
    let average_price = exact::amount(position.cost_basis.as_ref())?;
    let Some(quantity) = quantity else {
        return Ok(Err("no_units"));
    };
    let instrument = position.instrument.unwrap_or_default();
    let multiplier = multiplier(&instrument)?;
    let PositionValue {
        market_value,
        cost,
        unrealized_pnl,
    } = value_position(
        &quantity,
        current_price.as_ref(),
        average_price.as_ref(),
        &multiplier,
    );
    let id = non_blank(instrument.id);
    let symbols = [
        instrument.symbol,
        instrument.raw_symbol,
        instrument.root_symbol,
    ];
    let Some(symbol) = symbols
        .into_iter()
        .find_map(non_blank)
        .or_else(|| id.clone())
    else {
        return Ok(Err("no_instrument"));
    };
    Ok(Ok(Holding {
        account,
        instrument_id: id.unwrap_or_else(|| symbol.clone()),
        occurrence: 1,
        symbol,
        name: non_blank(instrument.description),
        exchange: non_blank(instrument.exchange),
        currency: non_blank(position.currency)
            .or_else(|| non_blank(instrument.currency))
            .unwrap_or(Cow::Borrowed(account.currency.as_str())),
        quantity,
        average_price,
        current_price,
        market_value,
        cost,
        unrealized_pnl,
    }))
}

/// The units of the underlying in one unit of an instrument. A contract without a multiplier has no
/// known value.
fn multiplier<'a>(instrument: &wire::Instrument<'a>) -> Result<Multiplier<'a>, Error> {
    let kind = instrument.kind.as_ref().map_or("", Text::as_str);
    Ok(match exact::amount(instrument.multiplier.as_ref())? {
        Some(sent) => Multiplier::Of(sent),
        None if matches!(kind, "option" | "future" | "future_option") => Multiplier::Unknown,
        None => Multiplier::One,
    })
}

pub(super) fn trade<'a>(
    row: wire::Activity<'a>,
    account: &'a Account,
) -> Result<Trade<'a>, Skipped> {
    let time = row
        .trade_date
        .as_ref()
        .and_then(|date| trade_time(date.as_str()));
    // The amounts come first: where one is invalid, a read fails, even if the row has no date.
    let decimal = |number: &Option<ExactNumber<'a>>| {
        exact::amount(number.as_ref()).map_err(|_| {
            Skipped::unreadable(
                UnreadableReason::InvalidAmount,
                time.map(TradeTime::instant),
            )
        })
    };
    let (quantity, price) = (decimal(&row.units)?, decimal(&row.price)?);
    let (total_amount, fees) = (decimal(&row.amount)?, decimal(&row.fee)?);
    let trade_date = row.trade_date.ok_or(Skipped::NoTime)?;
    let time = time.ok_or(Skipped::unreadable(UnreadableReason::InvalidDate, None))?;
    let (symbol, name) = security(row.option_symbol, row.symbol);
    let quote = row
        .currency_universal_symbol
        .and_then(|symbol| non_blank(symbol.symbol));
    let provider_type = row.activity_type.unwrap_or_default().0;
    Ok(Trade {
        account,
        symbol,
        name,
        trade_type: trade_type(&provider_type),
        provider_type,
        quantity,
        price,
        currency: non_blank(row.currency.and_then(|currency| currency.code))
            .or(quote)
            .unwrap_or(Cow::Borrowed(account.currency.as_str())),
        total_amount,
        fees,
        trade_date: with_t_separator(trade_date.0),
        time,
        settlement_date: non_blank(row.settlement_date).map(with_t_separator),
        description: non_blank(row.description),
    })
}

/// Ticker and name. Some brokers send the underlying as the symbol of an option, so `option` takes
/// precedence (docs/providers/snaptrade.md#activities).
fn security<'a>(
    option: Option<wire::OptionSymbol<'a>>,
    symbol: Option<wire::Symbol<'a>>,
) -> (Cow<'a, str>, Option<Cow<'a, str>>) {
    let split =
        |symbol: wire::Symbol<'a>| (non_blank(symbol.symbol), non_blank(symbol.description));
    let (ticker, name) = symbol.map(split).unwrap_or_default();
    let (contract, underlying) = option
        .map(|option| (non_blank(option.ticker), option.underlying_symbol))
        .unwrap_or_default();
    let underlying_name = underlying.and_then(|underlying| non_blank(underlying.description));
    (
        contract.or(ticker).unwrap_or_default(),
        underlying_name.or(name),
    )
}

fn trade_type(provider_type: &str) -> TradeType {
    match provider_type.trim().to_ascii_uppercase().as_str() {
        "BUY" | "REI" => TradeType::Buy,
        "SELL" => TradeType::Sell,
        "DIVIDEND"
        | "SUBSTITUTE_DIVIDEND"
        | "STOCK_DIVIDEND"
        | "DISTRIBUTION"
        | "RETURN_OF_CAPITAL" => TradeType::Dividend,
        "SPLIT" | "REVERSE_SPLIT" => TradeType::Split,
        "TRANSFER" | "CONTRIBUTION" | "WITHDRAWAL" => TradeType::Transfer,
        "FEE" | "TAX" => TradeType::Fee,
        "INTEREST" => TradeType::Interest,
        kind if kind.starts_with("EXTERNAL_") || kind.starts_with("INTERNAL_") => {
            TradeType::Transfer
        }
        _ => TradeType::Other,
    }
}

/// Parses a day or an instant. An instant has `T` or a blank before the time, and `Z`, an offset or
/// nothing (UTC) after it. Midnight UTC counts as a day, since brokers without times write a day so
/// (docs/providers/snaptrade.md#activity-dates).
pub(super) fn trade_time(text: &str) -> Option<TradeTime> {
    let (day, rest) = text.split_at_checked(10)?;
    let shape = day.bytes().enumerate().all(|(at, byte)| {
        if matches!(at, 4 | 7) {
            byte == b'-'
        } else {
            byte.is_ascii_digit()
        }
    });
    let day: Date = day.parse().ok().filter(|_| shape)?;
    let Some(clock) = rest.strip_prefix(['T', ' ']) else {
        return rest.is_empty().then_some(TradeTime::Day(day));
    };
    let plain = clock
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b":.+-Z".contains(&byte));
    let utc = |local: DateTime| local.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp());
    let instant = text
        .parse::<Timestamp>()
        .or_else(|_| text.parse::<DateTime>().and_then(utc))
        .ok()
        .filter(|_| plain)?;
    // With another offset, midnight UTC is an ordinary time.
    let at_utc = TimeZone::UTC.to_datetime(instant);
    let is_day = at_utc.time() == Time::midnight() && clock.starts_with("00:00");
    Some(if is_day {
        TradeTime::Day(at_utc.date())
    } else {
        TradeTime::Instant(instant)
    })
}

/// The date as sent, but with `T` instead of a blank between day and time.
fn with_t_separator(date: Cow<'_, str>) -> Cow<'_, str> {
    if date.as_bytes().get(10) == Some(&b' ') {
        Cow::Owned(date.replacen(' ', "T", 1))
    } else {
        date
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::table::table;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_account_category_has_its_type() {
        for (category, expected) in [
            (Some("INVESTMENT"), AccountType::Investment),
            (Some("ANNUITY"), AccountType::Investment),
            (None, AccountType::Investment),
            (Some("DEPOSIT"), AccountType::Transaction),
            (Some("LOC"), AccountType::Loan),
            (Some("SOMETHING_NEW"), AccountType::Other),
        ] {
            assert_eq!(account_type(category), expected, "{category:?}");
        }
    }

    #[test]
    fn account_numbers_in_names_are_masked() {
        let text = |text: &'static str| (text != "-").then(|| Text(text.into()));
        for [name, institution, raw_type, number, expected] in table(
            "Robinhood Individual | Robinhood | Margin | Q6542138443 | Robinhood Individual
            - | Robinhood | Margin | Q6542138443 | Robinhood Margin
            | Robinhood | - | Q6542138443 | Robinhood
            - | - | Margin | Q6542138443 | Margin
            - | - | - | Q6542138443 | Account
            IRA Q6542138443 | - | - | Q6542138443 | IRA xxxx8443
            IRA ****8443 | - | - | ****8443 | IRA ****8443
            Robinhood 54953432 | - | - | ****8443 | Robinhood xxxx3432
            Account 1 | - | - | 1 | Account 1
            Account | - | - | | Account",
        ) {
            let row = wire::Account {
                name: text(if name.is_empty() { " " } else { name }),
                institution_name: text(institution),
                raw_type: text(raw_type),
                number: text(number),
                institution_account_id: text("54953432"),
                ..wire::Account::default()
            };
            assert_eq!(account(&row).name, expected);
        }
    }

    #[test]
    fn every_documented_activity_has_its_type() {
        for [expected, types] in table(
            "Buy | BUY REI
            Sell | SELL
            Dividend | DIVIDEND SUBSTITUTE_DIVIDEND STOCK_DIVIDEND DISTRIBUTION RETURN_OF_CAPITAL
            Split | SPLIT REVERSE_SPLIT
            Transfer | TRANSFER CONTRIBUTION WITHDRAWAL
            Transfer | EXTERNAL_ASSET_TRANSFER_IN EXTERNAL_ASSET_TRANSFER_OUT
            Transfer | INTERNAL_CASH_TRANSFER_IN INTERNAL_CASH_TRANSFER_OUT
            Transfer | INTERNAL_ASSET_TRANSFER_IN INTERNAL_ASSET_TRANSFER_OUT
            Fee | FEE TAX
            Interest | INTEREST
            Other | OPTIONEXPIRATION OPTIONASSIGNMENT OPTIONEXERCISE
            Other | SPINOFF STOCK_MERGER ADJUSTMENT REBATE
            Other | JOURNAL CASH MERGER CORP_ACTION spend BUY_TO_COVER",
        ) {
            for provider_type in types.split(' ') {
                for sent in [provider_type, &provider_type.to_lowercase()] {
                    assert_eq!(format!("{:?}", trade_type(sent)), expected, "{sent}");
                }
            }
        }
        assert_eq!(trade_type(""), TradeType::Other);
    }

    #[test]
    fn trade_dates() {
        for [sent, expected] in table(
            "2024-03-22 | 2024-03-22
            2024-03-22T00:00:00Z | 2024-03-22
            2024-03-22T00:00:00.000Z | 2024-03-22
            2024-03-22T00:00:00+00:00 | 2024-03-22
            2024-03-22 00:00:00.000000+00:00 | 2024-03-22
            2024-03-22T00:00:00 | 2024-03-22
            2024-03-22 00:00:00 | 2024-03-22
            2024-03-22T16:27:55Z | 2024-03-22T16:27:55Z
            2024-03-22T16:27:55.123456Z | 2024-03-22T16:27:55.123456Z
            2024-03-22T16:27:55.123456789Z | 2024-03-22T16:27:55.123456789Z
            2024-06-28 18:42:46.561408+00:00 | 2024-06-28T18:42:46.561408Z
            2024-03-22T16:27:55 | 2024-03-22T16:27:55Z
            2024-03-22 16:27:55.5 | 2024-03-22T16:27:55.5Z
            2022-01-21T15:11:19.217000-05:00 | 2022-01-21T20:11:19.217Z
            // Midnight in New York, and midnight UTC with the offset of New York.
            2026-08-27T04:00:00Z | 2026-08-27T04:00:00Z
            2026-08-27T00:00:00-04:00 | 2026-08-27T04:00:00Z
            2026-08-26T20:00:00-04:00 | 2026-08-27T00:00:00Z
            2026-08-27T00:00:00.000000001Z | 2026-08-27T00:00:00.000000001Z",
        ) {
            let expected = match expected.len() {
                10 => TradeTime::Day(expected.parse().unwrap()),
                _ => TradeTime::Instant(expected.parse().unwrap()),
            };
            assert_eq!(trade_time(sent), Some(expected), "{sent:?}");
        }
        for sent in [
            "",
            "2024-3-22",
            "2024-02-30",
            "2024-02-30T00:00:00Z",
            "20240322",
            "20240322T162755Z",
            "2024-03-22X00:00:00Z",
            "2024-03-22T25:00:00Z",
            "2024-03-22T",
            "2024-03-22 ",
            "2024-03-22T16:27:55[UTC]",
            "2024-03-22T16:27:55 UTC",
            "+002024-03-22",
            "２０２４-03-22",
        ] {
            assert_eq!(trade_time(sent), None, "{sent:?}");
        }
    }

    #[test]
    fn dates_are_shown_as_sent() {
        for (sent, shown) in [
            ("2024-03-22", "2024-03-22"),
            ("2024-03-22T00:00:00.000Z", "2024-03-22T00:00:00.000Z"),
            (
                "2024-06-28 18:42:46.561408+00:00",
                "2024-06-28T18:42:46.561408+00:00",
            ),
            ("soon", "soon"),
        ] {
            assert_eq!(with_t_separator(Cow::Borrowed(sent)), shown);
        }
    }

    proptest! {
        #[test]
        fn dates_never_panic(text in "\\PC{0,40}") {
            let _ = trade_time(&text);
            let _ = with_t_separator(Cow::Borrowed(&text));
        }

        #[test]
        fn near_misses_never_panic(text in "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]?[0-9:.+-]{0,20}Z?") {
            let _ = trade_time(&text);
        }

        /// The model is jiff's text of an instant, with the blank and the fraction that the
        /// provider may send.
        #[test]
        fn instants_are_parsed_exactly(
            second in 0_i64..4_000_000_000,
            nano in 0_i32..1_000_000_000,
            blank in any::<bool>(),
        ) {
            let instant = Timestamp::new(second, nano).unwrap();
            let mut text = format!("{instant:.9}");
            if blank {
                text = text.replace('T', " ");
            }
            prop_assert_eq!(trade_time(&text).map(TradeTime::instant), Some(instant));
        }
    }
}
