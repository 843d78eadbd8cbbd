//! Batches of statements on PostgreSQL.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt as _;
use futures_util::future::maybe_done;

use crate::db::postgres::send_in_order;

/// More than `join_all` polls one after the other.
const MESSAGES: usize = 40;

#[test]
fn first_poll_sends_all_messages_in_order() {
    let sent = RefCell::new(Vec::new());
    // Wakes its task while it is polled, as a future does whose result comes in at that moment.
    let message = |number: usize| {
        let (sent, mut is_sent) = (&sent, false);
        maybe_done(poll_fn(move |context| {
            if !is_sent {
                is_sent = true;
                sent.borrow_mut().push(number);
                context.waker().wake_by_ref();
            }
            match sent.borrow().len() {
                MESSAGES => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }))
    };
    let begin = pin!(message(0));
    let mut statements: Vec<_> = (1..MESSAGES - 1)
        .map(|number| Box::pin(message(number)))
        .collect();
    let commit = pin!(message(MESSAGES - 1));
    let sending = send_in_order(begin, &mut statements, commit);
    assert!(sending.now_or_never().is_some(), "{:?}", sent.borrow());
    assert_eq!(*sent.borrow(), Vec::from_iter(0..MESSAGES));
}
