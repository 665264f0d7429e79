//! A connection whose objects `manyways get` fetches over several paths at once.
//!
//! A [`Client`] fetches one object at a time, over a connection of its own on each path. So a connection
//! of the plan has as many clients to an origin as it has exchanges at a time, and each is used again.
//! All other exchanges go over one plain connection.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use manyways_model::drive::Input;
use manyways_unit::Size;
use tokio::sync::{mpsc, oneshot};

use super::recording::Message;
use super::{Link, Order, Reports};
use crate::fetch::{
    Cause, Client, ClientError, Job, Names, Origin, PathSpec, Trust, can_be_header,
};

/// How objects are fetched.
#[derive(Clone, Debug)]
pub struct Fetching {
    /// The names of the recording lead to its servers, whatever their resolvers are.
    pub paths: Vec<PathSpec>,
    pub trust: Trust,
}

/// Executes orders until there are none. `exchanges` are those of the connection.
pub(super) async fn serve(
    link: Link,
    fetching: Fetching,
    exchanges: Vec<usize>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    // Clients connect when they fetch.
    link.report(Input::Opened(link.number));
    let mut plain = Plain::new(&link);
    let reports = link.reports.clone();
    let clients = Rc::new(Clients::new(link, fetching, exchanges));
    let mut stops: HashMap<usize, oneshot::Sender<()>> = HashMap::new();
    loop {
        tokio::select! {
            // A plain connection that has failed gets no further order.
            biased;
            Some(input) = plain.inputs.recv() => plain.pass_on(input, &reports),
            order = orders.recv() => match order {
                Some(Order::Send(exchange)) => match clients.job(exchange) {
                    Some(job) => {
                        let (stop, stopped) = oneshot::channel();
                        stops.insert(exchange, stop);
                        let clients = Rc::clone(&clients);
                        tokio::task::spawn_local(async move {
                            clients.fetch(exchange, &job, stopped).await;
                        });
                    }
                    None => plain.send(exchange, &reports),
                },
                Some(Order::Cancel(exchange)) => match stops.remove(&exchange) {
                    // A dropped sender stops the fetch.
                    Some(stop) => drop(stop),
                    None => plain.cancel(exchange),
                },
                None => return,
            },
        }
    }
}

/// The clients of a connection of the plan.
struct Clients {
    link: Link,
    fetching: Fetching,
    exchanges: Vec<usize>,
    /// Without a job, and the one that was used last is the last of its origin.
    idle: RefCell<HashMap<Origin, Vec<Client>>>,
}

impl Clients {
    fn new(link: Link, fetching: Fetching, exchanges: Vec<usize>) -> Self {
        Self { link, fetching, exchanges, idle: RefCell::default() }
    }

    /// Returns the job of an exchange, if its whole object is wanted and the connection leads to the
    /// server of its URL.
    fn job(&self, exchange: usize) -> Option<Job> {
        let message = self.link.messages.get(exchange).filter(|message| message.is_whole_object)?;
        let job = Job::new(&message.url, "").ok()?;
        let (origin, target) = (job.location().origin(), &self.link.target);
        let is_target =
            origin.port == target.address.port() && origin.secure == target.tls.is_some();
        is_target.then_some(job)
    }

    /// Fetches an object, and reports its progress until its end or `stopped`.
    async fn fetch(&self, exchange: usize, job: &Job, stopped: oneshot::Receiver<()>) {
        let origin = job.location().origin().clone();
        let idle = self.idle.borrow_mut().get_mut(&origin).and_then(Vec::pop);
        let mut client = match idle.map_or_else(|| self.client(&origin), Ok) {
            Ok(client) => client,
            Err(error) => {
                tracing::debug!("exchange {exchange}: {error}");
                return self.link.report(Input::Failed(exchange));
            }
        };
        let stop = async {
            let _ = stopped.await;
        };
        let mut ignore = |_: crate::fetch::Event<'_>| {};
        let (mut body, transfer) = client.stream(job, &mut ignore, stop);
        let read = async {
            let mut received = 0;
            while let Some(piece) = body.next().await {
                if received == 0 {
                    self.link.report(Input::ResponseStarted(exchange));
                }
                received += piece.len() as u64;
                let total = Size::from_bytes(received);
                self.link.report(Input::Received { exchange, total });
            }
        };
        let (outcome, ()) = tokio::join!(transfer, read);
        match outcome {
            Ok(_) => self.link.report(Input::Ended(exchange)),
            Err(error) if matches!(error.cause, Cause::Stopped) => {}
            Err(error) => {
                tracing::debug!("exchange {exchange}: {}", error.cause);
                self.link.report(Input::Failed(exchange));
            }
        }
        self.idle.borrow_mut().entry(origin).or_default().push(client);
    }

    fn client(&self, origin: &Origin) -> Result<Client, ClientError> {
        let address = vec![self.link.target.address.ip()];
        let names: HashMap<String, Vec<IpAddr>> = [(origin.host.clone(), address)].into();
        let names: Arc<dyn Names> = Arc::new(names);
        let paths = self.fetching.paths.iter();
        let paths =
            paths.map(|path| PathSpec { resolver: Arc::clone(&names), ..PathSpec::clone(path) });
        let to_origin = |exchange: &&usize| {
            self.job(**exchange).is_some_and(|job| job.location().origin() == origin)
        };
        let exchanges = self.exchanges.iter().filter(to_origin);
        let headers = common_headers(exchanges.filter_map(|each| self.link.messages.get(*each)));
        let builder = Client::builder().paths(paths).trust(self.fetching.trust.clone());
        headers.into_iter().fold(builder, |builder, line| builder.header(line)).build()
    }
}

/// Returns the header fields that all of these messages have, as lines. A client has the same fields in
/// all of its requests.
fn common_headers<'m>(mut messages: impl Iterator<Item = &'m Message>) -> Vec<String> {
    let mut fields = messages.next().map(|first| first.fields.clone()).unwrap_or_default();
    for message in messages {
        fields.retain(|field| message.fields.contains(field));
    }
    let lines = fields.iter().filter_map(|field| {
        Some(format!("{}: {}", field.name, std::str::from_utf8(&field.value).ok()?))
    });
    lines.filter(|line| can_be_header(line)).collect()
}

/// The connection for everything else, over the first path. It opens with its first request.
struct Plain {
    link: Link,
    orders: Option<mpsc::UnboundedSender<Order>>,
    inputs: mpsc::UnboundedReceiver<Input>,
    /// Exchanges without an end.
    open: BTreeSet<usize>,
}

impl Plain {
    fn new(link: &Link) -> Self {
        let (reports, inputs) = mpsc::unbounded_channel();
        let link = Link { reports, ..link.clone() };
        Self { link, orders: None, inputs, open: BTreeSet::new() }
    }

    fn send(&mut self, exchange: usize, reports: &Reports) {
        let orders = self.orders.get_or_insert_with(|| {
            let (orders, receiver) = mpsc::unbounded_channel();
            tokio::task::spawn_local(self.link.clone().serve(receiver));
            orders
        });
        self.open.insert(exchange);
        if orders.send(Order::Send(exchange)).is_err() {
            self.pass_on(Input::Failed(exchange), reports);
        }
    }

    fn cancel(&mut self, exchange: usize) {
        self.open.remove(&exchange);
        if let Some(orders) = &self.orders {
            let _ = orders.send(Order::Cancel(exchange));
        }
    }

    /// Reports an event of the connection. Its own failure is only that of its exchanges.
    fn pass_on(&mut self, input: Input, reports: &Reports) {
        match input {
            Input::Opened(_) => return,
            Input::ConnectionFailed(_) => {
                self.orders = None;
                for exchange in std::mem::take(&mut self.open) {
                    let _ = reports.send(Input::Failed(exchange));
                }
                return;
            }
            Input::Ended(exchange) | Input::Failed(exchange) => {
                self.open.remove(&exchange);
            }
            Input::ResponseStarted(_) | Input::Received { .. } => {}
        }
        let _ = reports.send(input);
    }
}

#[cfg(test)]
mod tests;
