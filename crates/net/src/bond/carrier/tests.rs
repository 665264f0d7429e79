//! Two ends of a carrier over loopback.

use std::future::poll_fn;

use manyways_proto::mux::LoanMessage;
use manyways_proto::relay::Class;
use rustls::pki_types::ServerName;
use tokio::io::ReadBuf;
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::bond::key::PrivateKey;
use crate::bond::tls;

/// Returns the two ends of a carrier: that of the client is the first.
pub(in crate::bond) async fn carriers() -> [CarrierIo; 2] {
    let [own, other] = [(); 2].map(|()| PrivateKey::generate().unwrap());
    let server = tls::server(&other, std::sync::Arc::new(|_: &_| true), &[tls::PIPE_PROTOCOL]);
    let client = tls::client(&own, other.public(), tls::PIPE_PROTOCOL).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let name = ServerName::try_from("lender.invalid").unwrap();
    let connector = TlsConnector::from(client);
    let acceptor = TlsAcceptor::from(server.unwrap());
    let (near, far) = tokio::join!(connector.connect(name, stream), acceptor.accept(accepted));
    let ((near, near_tls), (far, far_tls)) =
        (near.unwrap().into_inner(), far.unwrap().into_inner());
    let near = TcpCarrier::new(near, Connection::Client(near_tls));
    let far = TcpCarrier::new(far, Connection::Server(far_tls));
    [near, far].map(|carrier| CarrierIo::Tcp(Box::new(carrier)))
}

/// Waits until this number of bytes has arrived in the kernel.
async fn arrives(stream: &TcpStream, count: usize) {
    let mut space = vec![0; count];
    poll_fn(|context| {
        let mut space = ReadBuf::new(&mut space);
        let peeked = stream.poll_peek(context, &mut space);
        match peeked {
            // The task runs again, and the kernel delivers over loopback meanwhile.
            Poll::Ready(Ok(bytes)) if bytes < count => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            done => done.map(|bytes| assert!(bytes.is_ok())),
        }
    })
    .await;
}

/// The lender of a fast network: frames arrive together with the answer after which they come, and
/// are more than the library decrypts at once.
async fn frames_follow(answer: LoanMessage) {
    let [near, far] = carriers().await;
    let (CarrierIo::Tcp(near), CarrierIo::Tcp(mut far)) = (near, far) else { panic!("TCP") };
    far.queue(&Message::Loan(answer.clone()));
    assert!(far.flush().unwrap());
    let frame = |number: u64| Frame::Sealed {
        class: Class::Bulk,
        number,
        sealed: Bytes::from(vec![number as u8; 3_000]),
    };
    for number in 0..10 {
        far.queue_frame(&frame(number));
        assert!(far.flush().unwrap());
    }
    let sent = far.byte_counts().1 as usize;
    arrives(&near.stream, sent).await;
    let mut near = CarrierIo::Tcp(near);
    let messages = near.messages().await.unwrap();
    assert_eq!(messages.len(), 1, "{answer:?}: {messages:?}");
    let CarrierIo::Tcp(mut near) = near else { panic!("TCP") };
    near.relay();
    let mut frames = Vec::new();
    let mut take = |received| {
        if let Received::Frame(frame) = received {
            frames.push(frame);
        }
    };
    near.decrypt(&mut take).unwrap();
    assert_eq!(near.byte_counts().0 as usize, sent);
    assert_eq!(frames, (0..10).map(frame).collect::<Vec<_>>(), "{answer:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn frames_that_arrive_with_the_answer_before_them_are_kept() {
    frames_follow(LoanMessage::Redeemed).await;
    frames_follow(LoanMessage::Joined { rtt: Span::from_millis(20) }).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_peer_that_announces_frames_to_nobody_does_not_fill_the_memory() {
    let [near, far] = carriers().await;
    let (CarrierIo::Tcp(mut near), CarrierIo::Tcp(mut far)) = (near, far) else { panic!("TCP") };
    far.queue(&Message::Loan(LoanMessage::Redeemed));
    assert!(far.flush().unwrap());
    let mut buffer = Vec::new();
    let read = loop {
        near.stream.ready(Interest::READABLE).await.unwrap();
        let mut count = 0;
        let read = near.read(&mut buffer, |_| count += 1);
        if count > 0 || read.is_err() {
            break read;
        }
    };
    read.unwrap();
    assert!(matches!(near.read(&mut buffer, |_| {}), Err(CarrierError::Message(_))));
}
