//! A test event, and how the endpoint responded. The response is shown now, and stored nowhere.

use bellbird_api::docs::event_examples;
use bellbird_domain::{EventId, EventType};
use bellbird_storage::{Endpoint, StorageError};
use bellbird_webhooks::{PingError, PingOutcome};
use http::StatusCode;

use crate::error_page::Failure;
use crate::pages::{Done, sentence};
use crate::session::Session;

/// What came of a test event.
pub(super) struct Pinged {
    pub(super) text: String,
    pub(super) is_delivered: bool,
    /// The beginning of the response body. Empty: there was none.
    pub(super) response: String,
    /// Of the page.
    pub(super) status: StatusCode,
}

impl Pinged {
    fn not_sent(status: StatusCode, why: &str) -> Self {
        Self {
            text: format!("No test event was sent. {why}"),
            is_delivered: false,
            response: String::new(),
            status,
        }
    }
}

pub(super) async fn send(session: &Session, endpoint: &Endpoint) -> Result<Pinged, Failure> {
    if is_limited(session).await {
        let why = "You have sent many. Wait a minute before the next one.";
        return Ok(Pinged::not_sent(StatusCode::TOO_MANY_REQUESTS, why));
    }
    let why = match session.site.webhooks.ping(endpoint).await {
        Ok(outcome) => return Ok(pinged(outcome)),
        Err(PingError::NotFound) => return Err(Failure::NotFound),
        Err(PingError::Storage(error)) => return Err(error.into()),
        Err(PingError::Secret) => {
            "Its secret cannot be read any more. Give it a new one.".to_owned()
        }
        Err(PingError::Target(error)) => sentence(&error.to_string()),
    };
    Ok(Pinged::not_sent(StatusCode::CONFLICT, &why))
}

/// Sends the example of an event type, which counts like a test event.
pub(super) async fn send_example(
    session: &Session,
    endpoint: &Endpoint,
    event_type: EventType,
) -> Result<Done, StorageError> {
    let mut examples = event_examples().iter();
    let example = examples.find(|example| example.event_type == event_type);
    let (Some(example), false) = (example, is_limited(session).await) else {
        return Ok(Done::ExampleNotSent);
    };
    let event = EventId::new();
    let body = example.test_body(event, session.now, endpoint.api_version);
    let sent = session.site.webhooks.send_example(endpoint, event, body);
    match sent.await {
        Ok(exchange) if exchange.is_success() => Ok(Done::ExampleDelivered),
        Ok(_) => Ok(Done::ExampleNotDelivered),
        Err(PingError::Storage(error)) => Err(error),
        Err(_) => Ok(Done::ExampleNotSent),
    }
}

async fn is_limited(session: &Session) -> bool {
    let limit = &session.ping_limit;
    !limit.take(session.user(), session.now).await.allowed
}

fn pinged(outcome: PingOutcome) -> Pinged {
    let exchange = outcome.exchange;
    let ms = exchange.duration.as_millis();
    let text = match (exchange.status, exchange.shown()) {
        (Some(status), _) if exchange.is_success() => {
            format!(
                "The test event was delivered. Your program responded with {status} after {ms} ms."
            )
        }
        (Some(status), _) => format!(
            "The test event was not delivered. Your program responded with {status} after {ms} ms, and an event is \
             delivered when the status is from 200 to 299."
        ),
        (None, Some(error)) => {
            format!("The test event was not delivered: {error}, after {ms} ms.")
        }
        (None, None) => format!("The test event was not delivered: no response within {ms} ms."),
    };
    Pinged {
        text,
        is_delivered: exchange.is_success(),
        response: outcome.response,
        status: StatusCode::OK,
    }
}
