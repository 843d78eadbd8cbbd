//! A name server on loopback for tests. It returns configured responses and counts lookups.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;

/// One day, so that a resolver with a cache would ask only once.
const TIME_TO_LIVE: u32 = 86_400;

#[derive(Clone)]
pub(crate) enum MockAnswer {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    ServerFailure,
    NoAnswer,
}

impl MockAnswer {
    pub(crate) fn addresses(list: &[&str]) -> Self {
        Self::Addresses(list.iter().map(|text| text.parse().unwrap()).collect())
    }
}

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    lookups: Arc<AtomicUsize>,
}

impl NameServer {
    /// Responds to all names alike. `configured` gets the number of the lookup, from 0. One lookup
    /// is a query for A and a query for AAAA, in any order.
    pub(crate) async fn new(configured: impl Fn(usize) -> MockAnswer + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lookups);
        tokio::spawn(async move {
            let mut counts_by_type = [0, 0];
            let mut packet = [0; 4096];
            loop {
                let (length, from) = socket.recv_from(&mut packet).await.unwrap();
                let question = Message::from_vec(&packet[..length]).unwrap();
                let number = &mut counts_by_type
                    [usize::from(question.queries[0].query_type() == RecordType::AAAA)];
                let answer = answer(question, configured(*number));
                *number += 1;
                counted.store(counts_by_type[0].max(counts_by_type[1]), Ordering::SeqCst);
                if let Some(answer) = answer {
                    socket
                        .send_to(&answer.to_vec().unwrap(), from)
                        .await
                        .unwrap();
                }
            }
        });
        Self { address, lookups }
    }

    /// Number of lookups so far.
    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

fn answer(question: Message, configured: MockAnswer) -> Option<Message> {
    let query = question.queries[0].clone();
    let mut answer = question.into_response();
    match configured {
        MockAnswer::NoAnswer => return None,
        MockAnswer::ServerFailure => answer.metadata.response_code = ResponseCode::ServFail,
        MockAnswer::NoSuchName => answer.metadata.response_code = ResponseCode::NXDomain,
        MockAnswer::Addresses(addresses) => {
            let data = addresses
                .into_iter()
                .map(RData::from)
                .filter(|data| data.record_type() == query.query_type());
            answer.answers = data
                .map(|data| Record::from_rdata(query.name().clone(), TIME_TO_LIVE, data))
                .collect();
        }
    }
    Some(answer)
}
