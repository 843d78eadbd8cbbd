//! For tests: a name server on loopback that answers as it is told, and counts what it was asked.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;

/// A day: nobody who honours it asks twice.
const TIME_TO_LIVE: u32 = 86_400;

/// What is known of a name.
#[derive(Clone)]
pub(crate) enum Known {
    Addresses(Vec<IpAddr>),
    Nothing,
    /// An error of the server.
    Trouble,
    /// It does not answer.
    Silence,
}

impl Known {
    pub(crate) fn addresses(list: &[&str]) -> Self {
        Self::Addresses(list.iter().map(|text| text.parse().unwrap()).collect())
    }
}

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    lookups: Arc<AtomicUsize>,
}

impl NameServer {
    /// One that answers all names alike, by the number of the look-up, from 0. A look-up is a question for A and, with it
    /// or later, one for AAAA.
    pub(crate) async fn new(known: impl Fn(usize) -> Known + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lookups);
        tokio::spawn(async move {
            let mut of_type = [0, 0];
            let mut packet = [0; 4096];
            loop {
                let (length, from) = socket.recv_from(&mut packet).await.unwrap();
                let question = Message::from_vec(&packet[..length]).unwrap();
                let number = &mut of_type[usize::from(question.queries[0].query_type() == RecordType::AAAA)];
                let answer = answer(question, known(*number));
                *number += 1;
                counted.store(of_type[0].max(of_type[1]), Ordering::SeqCst);
                if let Some(answer) = answer {
                    socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
                }
            }
        });
        Self { address, lookups }
    }

    /// How many look-ups there were.
    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

fn answer(question: Message, known: Known) -> Option<Message> {
    let query = question.queries[0].clone();
    let mut answer = question.into_response();
    match known {
        Known::Silence => return None,
        Known::Trouble => answer.metadata.response_code = ResponseCode::ServFail,
        Known::Nothing => answer.metadata.response_code = ResponseCode::NXDomain,
        Known::Addresses(addresses) => {
            let data = addresses.into_iter().map(RData::from).filter(|data| data.record_type() == query.query_type());
            answer.answers = data.map(|data| Record::from_rdata(query.name().clone(), TIME_TO_LIVE, data)).collect();
        }
    }
    Some(answer)
}
