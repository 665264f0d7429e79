//! The aggregator of the records of a run: sorts and joins them, and makes tables.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use manyways_unit::{Span, Time};

use super::bluetooth::{ControlRow, StreamRow};
use super::dns::LookupRow;
use super::fetch::{Fetch, fetches};
use super::mptcp::{SubflowRow, started};
use super::{
    Enrichment, FlowExchange, FlowId, FlowPacket, FlowSecond, HttpTransaction, Multipath, Record,
    Settings, Summary, TcpFlow, UdpFlow,
};
use crate::align::Delay;
use crate::concurrency::{BIN_WIDTH, FlowLifetime, average};
use crate::device::{self, Device, Gaps, Pool, classify, devices};
use crate::flow::Stream;
use crate::mptcp;
use crate::mptcp::Connections;
use crate::server::{Organisations, clusters};
use manyways_record::table::{Anonymizer, Batch, Row, Schema};
use manyways_wire::dns::{HostsTable, QueriedBy, Resolution, Resolutions};
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::Segment;
use manyways_wire::{HostName, dhcp};

/// Maximum number of leases that are kept from one flush to the next.
const MAX_LEASES: usize = 1 << 16;
/// Number of records at which a flush is due if tables are made: rows are sorted, and joined with
/// other rows of the same flush.
const MAX_TABLE_ROWS: usize = 1 << 21;
/// Limit without tables but with an overview: a flow takes more than 1 KiB.
const MAX_JOINED_ROWS: usize = 1 << 16;
/// Limit with neither: records are only counted.
const MAX_COUNTED_ROWS: usize = 1 << 10;

/// Collects the records of analyses, in any order, and makes tables.
///
/// Rows are sorted by time, so that the same packets yield the same tables for any number of
/// shards. The caller bounds the memory with [`Aggregator::flush`]: flows are joined with flows of
/// the same flush, and with names and leases of this and earlier ones.
#[allow(clippy::vec_box, reason = "they are large, and sorted: they come in boxes, and stay there")]
pub struct Aggregator {
    organisations: Arc<Organisations>,
    pools: Vec<Pool>,
    tcp: Vec<Box<TcpFlow>>,
    udp: Vec<Box<UdpFlow>>,
    seconds: Vec<FlowSecond>,
    http: Vec<Box<HttpTransaction>>,
    exchanges: Vec<FlowExchange>,
    lookups: Vec<LookupRow>,
    streams: Vec<StreamRow>,
    controls: Vec<ControlRow>,
    packets: Vec<FlowPacket>,
    has_packets: bool,
    has_tables: bool,
    pseudonymizer: Option<Anonymizer>,
    resolved: Vec<(Time, Resolution)>,
    multipath: Vec<Multipath>,
    resolutions: Resolutions,
    hosts_table: Arc<HostsTable>,
    leases: Vec<dhcp::Lease>,
    connections: Connections,
    summary: Summary,
    /// Totals since the last [`Aggregator::take_recent`]; `None` without
    /// [`Aggregator::with_recent`].
    recent: Option<Box<Summary>>,
}

impl Aggregator {
    pub fn new(settings: &Settings) -> Self {
        let seed = || Arc::new(Organisations::built_in());
        Self {
            organisations: settings.organisations.clone().unwrap_or_else(seed),
            pools: settings.pools.clone(),
            tcp: Vec::new(),
            udp: Vec::new(),
            seconds: Vec::new(),
            http: Vec::new(),
            exchanges: Vec::new(),
            lookups: Vec::new(),
            streams: Vec::new(),
            controls: Vec::new(),
            packets: Vec::new(),
            has_packets: settings.packets,
            has_tables: true,
            pseudonymizer: settings.pseudonym_key.as_ref().map(Anonymizer::new),
            resolved: Vec::new(),
            multipath: Vec::new(),
            resolutions: Resolutions::default(),
            hosts_table: settings.hosts_table.clone().unwrap_or_default(),
            leases: Vec::new(),
            connections: Connections::new(mptcp::Limits::with_flow_timeout(settings.limits.idle)),
            summary: Summary::new(settings.overview),
            recent: None,
        }
    }

    /// Makes no tables, only the [`Aggregator::summary`].
    pub fn without_tables(self) -> Self {
        Self { has_tables: false, ..self }
    }

    /// Also collects the totals for [`Aggregator::take_recent`].
    pub fn with_recent(self) -> Self {
        Self { recent: Some(Box::default()), ..self }
    }

    /// Adds a record.
    pub fn add(&mut self, record: Record) {
        // These records count without their names, and are dropped if there are no tables.
        match (&mut self.summary.overview, &record) {
            (None, _) => {}
            (Some(overview), Record::Http(row)) => overview.add_http(row),
            (Some(overview), Record::Exchange(row)) => overview.add_exchange(row),
            (Some(overview), Record::Lookup(row)) => overview.add_lookup(row),
            _ => {}
        }
        match record {
            Record::Second(_) | Record::Http(_) | Record::Exchange(_) | Record::Lookup(_)
            | Record::Multipath(_) | Record::Stream(_) | Record::Control(_) | Record::Packet(_)
                // These records are needed only for rows.
                if !self.has_tables => {}
            Record::Lease(_) if !self.needs_join() => {}
            Record::Tcp(flow) => self.tcp.push(flow),
            Record::Udp(flow) => self.udp.push(flow),
            Record::Second(second) => self.seconds.push(second),
            Record::Http(row) => self.http.push(row),
            Record::Exchange(row) => self.exchanges.push(row),
            Record::Lookup(row) => self.lookups.push(LookupRow(*row)),
            Record::Resolved(at, resolved) => self.resolved.push((at, *resolved)),
            Record::Lease(lease) => self.leases.push(*lease),
            Record::Multipath(segment) => self.multipath.push(*segment),
            Record::Stream(stream) => self.streams.push(StreamRow(*stream)),
            Record::Control(control) => self.controls.push(ControlRow(*control)),
            Record::Packet(packet) => self.packets.push(packet),
        }
    }

    /// Returns the totals of all flushed records.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Number of records that wait for the next flush.
    pub fn pending(&self) -> usize {
        let flows = self.tcp.len() + self.udp.len() + self.seconds.len();
        let requests = self.http.len() + self.exchanges.len() + self.lookups.len();
        let others = self.streams.len() + self.controls.len() + self.packets.len();
        flows + requests + others + self.resolved.len() + self.multipath.len()
    }

    /// Whether [`Aggregator::flush`] is due.
    pub fn is_full(&self) -> bool {
        let max = match (self.has_tables, self.summary.overview.is_some()) {
            (true, _) => MAX_TABLE_ROWS,
            (false, true) => MAX_JOINED_ROWS,
            (false, false) => MAX_COUNTED_ROWS,
        };
        self.pending() >= max
    }

    /// Passes the collected records as rows of their tables to `each`. With `is_end`, also passes
    /// flow tables without rows.
    pub fn flush(&mut self, is_end: bool, each: impl FnMut(&Schema, &Batch)) {
        self.emit(is_end, is_end, each);
    }

    /// Completes the tables like a flush at the end, for a rotation. Flows that continue appear in
    /// a later rotation.
    pub fn rotate(&mut self, each: impl FnMut(&Schema, &Batch)) {
        self.emit(true, false, each);
    }

    /// Returns the totals since the previous call; requires [`Aggregator::with_recent`].
    pub fn take_recent(&mut self) -> Summary {
        self.recent.as_mut().map(|recent| std::mem::take(&mut **recent)).unwrap_or_default()
    }

    /// Whether an output needs properties that flows have in common with others.
    fn needs_join(&self) -> bool {
        self.has_tables || self.summary.overview.is_some()
    }

    /// `is_end` ends the tables, `is_over` ends the run.
    fn emit(&mut self, is_end: bool, is_over: bool, mut each: impl FnMut(&Schema, &Batch)) {
        self.tcp.sort_unstable_by_key(|flow| (flow.started(), flow.id));
        self.udp.sort_unstable_by_key(|flow| (flow.flow.started(), flow.id));
        self.set_names();
        let found = if self.needs_join() { self.classify() } else { Vec::new() };
        if self.needs_join() {
            self.locate();
        }
        self.summarise();
        if !self.has_tables {
            self.tcp.clear();
            self.udp.clear();
            return;
        }
        let (connections, parts) = self.join(is_over);
        // Packets of one flow come from one analysis and stay in their order.
        let order = |packet: &FlowPacket| packet.flow.map_or(packet.length, |_| 0);
        self.packets.sort_by_key(|packet| (packet.at, packet.flow, order(packet)));
        self.name_packets();
        self.seconds.sort_unstable_by_key(|second| (second.begins, second.id));
        self.seconds.dedup_by(|more, second| second.merge(more));
        self.http.sort_by_key(|row| (row_time(row), row.id, row.transaction.index));
        self.exchanges.sort_by_key(|row| (row.exchange.request_start, row.id));
        let when = |row: &LookupRow| row.queried_at.or(row.response.as_ref().map(|reply| reply.at));
        self.lookups.sort_by_key(|row| (when(row), row.client, row.id));
        emit_table::<TcpFlow>(&mut self.tcp, is_end, &mut self.pseudonymizer, &mut each);
        emit_table::<UdpFlow>(&mut self.udp, is_end, &mut self.pseudonymizer, &mut each);
        emit_table::<FlowSecond>(&mut self.seconds, is_end, &mut self.pseudonymizer, &mut each);
        emit_table::<Fetch>(&mut fetches(&self.http), false, &mut self.pseudonymizer, &mut each);
        emit_table::<HttpTransaction>(&mut self.http, is_end, &mut self.pseudonymizer, &mut each);
        emit_table::<FlowExchange>(&mut self.exchanges, is_end, &mut self.pseudonymizer, &mut each);
        emit_table::<LookupRow>(&mut self.lookups, is_end, &mut self.pseudonymizer, &mut each);
        emit_table::<Device>(&mut { found }, is_end, &mut self.pseudonymizer, &mut each);
        emit_table::<mptcp::Connection>(
            &mut { connections },
            false,
            &mut self.pseudonymizer,
            &mut each,
        );
        emit_table::<SubflowRow>(&mut { parts }, false, &mut self.pseudonymizer, &mut each);
        emit_table::<StreamRow>(&mut self.streams, false, &mut self.pseudonymizer, &mut each);
        emit_table::<ControlRow>(&mut self.controls, false, &mut self.pseudonymizer, &mut each);
        emit_table::<FlowPacket>(
            &mut self.packets,
            is_end && self.has_packets,
            &mut self.pseudonymizer,
            &mut each,
        );
    }

    fn summarise(&mut self) {
        let (summary, anonymizer) = (&mut self.summary, &mut self.pseudonymizer);
        self.tcp.iter().for_each(|flow| summary.add(flow, anonymizer.as_mut()));
        if let Some(recent) = &mut self.recent {
            self.tcp.iter().for_each(|flow| recent.add(flow, anonymizer.as_mut()));
        }
        for summary in [Some(summary), self.recent.as_deref_mut()].into_iter().flatten() {
            self.udp.iter().for_each(|flow| summary.add_udp(flow, anonymizer.as_mut()));
        }
    }

    /// Sets the names of servers.
    fn set_names(&mut self) {
        self.resolved.sort_by_key(|(at, _)| *at);
        for (at, resolved) in self.resolved.drain(..) {
            self.resolutions.learn(at, &resolved);
        }
        for flow in &mut self.tcp {
            let said = [
                (flow.application.host.clone(), "http"),
                (flow.application.server_name().map(str::to_owned), "tls"),
            ];
            let ends = (flow.client.ip(), flow.server.ip());
            let then = flow.connection.started();
            let known = (&self.resolutions, &*self.hosts_table);
            set_name(&mut flow.enrichment, said, known, then, ends);
        }
        for flow in &mut self.udp {
            let said = [(flow.server_name().map(str::to_owned), "tls"), (None, "")];
            let ends = (flow.client.ip(), flow.server.ip());
            let known = (&self.resolutions, &*self.hosts_table);
            set_name(&mut flow.enrichment, said, known, flow.flow.started(), ends);
        }
    }

    /// Sets the devices of clients and their concurrency.
    fn classify(&mut self) -> Vec<Device> {
        let of_tcp = self.tcp.iter().map(|flow| device::Flow {
            address: flow.client.ip(),
            started: flow.started(),
            ended: flow.connection.last(),
            agent: flow.application.agent,
            tls: flow.application.tls_device(),
        });
        let of_udp = self.udp.iter().map(|flow| device::Flow {
            address: flow.client.ip(),
            started: flow.flow.started(),
            ended: flow.flow.last(),
            agent: None,
            tls: None,
        });
        let flows: Vec<device::Flow> = of_tcp.chain(of_udp).collect();
        let leases: Vec<device::Lease> = self.leases.iter().map(lease).collect();
        let classes = classify(&flows, &self.pools, &leases);
        let joined = self.tcp.iter_mut().map(|flow| &mut flow.enrichment);
        let joined = joined.chain(self.udp.iter_mut().map(|flow| &mut flow.enrichment));
        for (enrichment, class) in joined.zip(&classes) {
            enrichment.classification = Some(*class);
        }
        let intervals: Vec<FlowLifetime> = self
            .tcp
            .iter()
            .map(|flow| FlowLifetime {
                address: flow.client.ip(),
                started: flow.started(),
                ended: flow.connection.last(),
            })
            .collect();
        for (flow, concurrency) in self.tcp.iter_mut().zip(average(&intervals, BIN_WIDTH)) {
            flow.enrichment.concurrency = Some(concurrency);
        }
        let found = devices(&flows, &classes, &leases, Gaps::default());
        let more = self.leases.len().saturating_sub(MAX_LEASES);
        self.leases.drain(..more);
        found
    }

    /// Sets the organisations of servers and their clusters.
    fn locate(&mut self) {
        let mut trips: BTreeMap<String, Vec<(IpAddr, Span)>> = BTreeMap::new();
        for flow in &mut self.tcp {
            locate(&mut flow.enrichment, &self.organisations, flow.server.ip());
            if let (Some(name), Some(rtt)) = (&flow.enrichment.organisation, flow.remote_rtt_min())
            {
                trips.entry(name.clone()).or_default().push((flow.server.ip(), rtt));
            }
        }
        for flow in &mut self.udp {
            locate(&mut flow.enrichment, &self.organisations, flow.server.ip());
        }
        let places: BTreeMap<String, _> =
            trips.into_iter().map(|(name, trips)| (name, clusters(trips))).collect();
        for flow in &mut self.tcp {
            let Some(clusters) = flow.enrichment.organisation.as_ref().and_then(|n| places.get(n))
            else {
                continue;
            };
            let index = clusters.servers.get(&flow.server.ip());
            let mode = index.and_then(|index| clusters.modes.get(*index).map(|mode| (index, mode)));
            flow.enrichment.cluster = mode.map(|(index, mode)| (*index as u64, mode.centre));
        }
    }

    /// Joins subflows into MPTCP connections.
    fn join(&mut self, is_end: bool) -> (Vec<mptcp::Connection>, Vec<SubflowRow>) {
        self.multipath.sort_by_key(|segment| segment.at);
        let mut ids: HashSet<FlowId> = HashSet::new();
        for Multipath { at, id, from, header, length } in self.multipath.drain(..) {
            ids.insert(id);
            if let Some(segment) = Segment::read(&header, length) {
                self.connections.handle(at, id.0, from, &segment);
            }
        }
        for flow in self.tcp.iter().filter(|flow| ids.contains(&flow.id)) {
            let bytes = [Endpoint::Client, Endpoint::Server]
                .map(|end| flow.connection.stream(end).map(Stream::unique_bytes));
            let (started, handshake) = (flow.started(), *flow.connection.handshake());
            self.connections
                .on_flow_end(flow.id.0, &mptcp::FlowSummary { started, handshake, bytes });
        }
        if is_end {
            self.connections.finish();
        }
        let mut over: Vec<mptcp::Connection> =
            std::iter::from_fn(|| self.connections.poll()).collect();
        over.sort_by_key(|connection| (started(connection), connection.id));
        let parts = over.iter().flat_map(|connection| {
            connection.subflows.iter().map(|subflow| SubflowRow {
                connection: connection.id,
                subflow: *subflow,
                join_delay: connection.join_delay(subflow),
            })
        });
        let parts = parts.collect();
        (over, parts)
    }

    fn name_packets(&mut self) {
        if self.packets.is_empty() {
            return;
        }
        let of_tcp = self.tcp.iter().map(|flow| (flow.id, &flow.enrichment, flow.server));
        let of_udp = self.udp.iter().map(|flow| (flow.id, &flow.enrichment, flow.server));
        let names: HashMap<FlowId, String> = of_tcp
            .chain(of_udp)
            .map(|(id, enrichment, server)| {
                (id, enrichment.domain().unwrap_or_else(|| server.ip().to_string()))
            })
            .collect();
        for packet in &mut self.packets {
            packet.application = packet.flow.and_then(|flow| names.get(&flow)).cloned();
        }
    }
}

/// Returns the schemas of all tables: those of captures, and the delays of aligned captures.
pub fn schemas() -> Vec<Schema> {
    vec![
        Schema::of::<TcpFlow>(),
        Schema::of::<UdpFlow>(),
        Schema::of::<FlowSecond>(),
        Schema::of::<HttpTransaction>(),
        Schema::of::<Fetch>(),
        Schema::of::<FlowExchange>(),
        Schema::of::<LookupRow>(),
        Schema::of::<Device>(),
        Schema::of::<mptcp::Connection>(),
        Schema::of::<SubflowRow>(),
        Schema::of::<StreamRow>(),
        Schema::of::<ControlRow>(),
        Schema::of::<FlowPacket>(),
        Schema::of::<Delay>(),
    ]
}

fn row_time(row: &HttpTransaction) -> Option<Time> {
    let transaction = &row.transaction;
    let asked = transaction.request.as_ref().map(|request| request.first);
    asked.or(transaction.response.as_ref().map(|response| response.first))
}

/// Sets the best name of a server, in this order: the name in the flow itself, a name that the
/// client resolved, a name that another client resolved, a reverse lookup. Within a step, names in
/// the capture precede names in files.
fn set_name(
    enrichment: &mut Enrichment,
    said: [(Option<String>, &'static str); 2],
    (resolutions, table): (&Resolutions, &HostsTable),
    then: Time,
    (client, server): (IpAddr, IpAddr),
) {
    let said = said.into_iter().find_map(|(name, source)| name.map(|name| (name, source)));
    let asked = || {
        let known = [resolutions.name(then, client, server), table.name(then, client, server)];
        let by_client = known.into_iter().flatten().find(|(_, by)| *by == QueriedBy::Client);
        let (name, by) = by_client.or_else(|| known.into_iter().flatten().next())?;
        let source = match by {
            QueriedBy::Client => "dns",
            QueriedBy::OtherClient => "dns of another",
        };
        Some((name.to_string(), source))
    };
    let host = || table.host(server).map(|name| (name.to_string(), "hosts"));
    let reverse = || resolutions.reverse(server).map(|name| (name.to_string(), "reverse"));
    if let Some((name, source)) = said.or_else(asked).or_else(host).or_else(reverse) {
        (enrichment.name, enrichment.name_source) = (Some(name), Some(source));
    }
}

fn locate(enrichment: &mut Enrichment, organisations: &Organisations, server: IpAddr) {
    let name = enrichment.name.as_ref().and_then(|name| HostName::parse(name.as_bytes()));
    enrichment.cdn = organisations.cdn(server, name.as_ref()).map(str::to_owned);
    if let Some(organisation) = organisations.of(server) {
        enrichment.asn = organisation.asn;
        enrichment.organisation = organisation.name.map(str::to_owned);
    }
}

fn lease(lease: &dhcp::Lease) -> device::Lease {
    let dhcp::ClientInfo { fingerprint, vendor, .. } = &lease.client_info;
    device::Lease {
        address: lease.address.into(),
        from: lease.granted_at,
        until: lease.expires_at.unwrap_or(Time::MAX),
        hardware: lease.hardware.mac(),
        device: device::dhcp(fingerprint.as_deref(), vendor.as_deref()),
    }
}

fn emit_table<R: Row>(
    rows: &mut Vec<impl Borrow<R>>,
    is_end: bool,
    anonymizer: &mut Option<Anonymizer>,
    each: &mut impl FnMut(&Schema, &Batch),
) {
    if rows.is_empty() && !is_end {
        return;
    }
    let mut batch = Batch::of::<R>();
    rows.drain(..).for_each(|row| batch.push(row.borrow(), anonymizer.as_mut()));
    each(&Schema::of::<R>(), &batch);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn each_column_has_a_name_of_its_own_and_says_what_it_is() {
        let mut tables = HashSet::new();
        for schema in schemas() {
            assert!(tables.insert(schema.table), "{}", schema.table);
            let mut names = HashSet::new();
            for (name, _, about) in &schema.columns {
                let is_plain =
                    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
                assert!(names.insert(*name) && is_plain, "{}.{name}", schema.table);
                assert!(about.len() > 5 && !about.contains("  "), "{}.{name}", schema.table);
            }
        }
    }

    fn lease() -> Record {
        let mut message = vec![2, 1, 6, 0, 0, 0, 0, 7];
        message.resize(28, 0);
        message.extend([2, 0, 0, 0, 0, 9]);
        message.resize(236, 0);
        message.extend([99, 130, 83, 99, 53, 1, 5, 255]);
        let message = dhcp::Message::read(&message, message.len()).unwrap();
        Record::Lease(Box::new(dhcp::Lease {
            address: Ipv4Addr::LOCALHOST,
            granted_at: Time::ZERO,
            expires_at: None,
            hardware: message.hardware,
            client_info: message.client_info,
            is_confirmed: true,
        }))
    }

    #[test]
    fn packets_of_one_moment_come_in_one_order_whoever_was_faster() {
        let packet = |flow: Option<u64>, length| {
            let flow = flow.map(FlowId);
            let (at, network, application) = (Time::ZERO, None, None);
            let (is_up, interface) = (true, 0);
            FlowPacket { at, length, is_up, interface, network, flow, application }
        };
        let mut rows = [
            packet(Some(2), 7),
            packet(None, 6),
            packet(None, 5),
            packet(Some(1), 9),
            packet(Some(1), 8),
        ];
        let mut lengths = Vec::new();
        for turn in [0, 3] {
            // Another analysis delivers its packets first; packets of one flow stay in order.
            rows.rotate_left(turn);
            let mut aggregator =
                Aggregator::new(&Settings { packets: true, ..Settings::default() });
            rows.iter().for_each(|row| aggregator.add(Record::Packet(row.clone())));
            aggregator.emit(true, true, |schema, batch| {
                if schema.table == FlowPacket::TABLE {
                    lengths.push(format!("{:?}", batch.columns()[1].data));
                }
            });
        }
        assert_eq!(lengths[0], lengths[1]);
    }

    /// A live capture has no end, so its memory must be bounded.
    #[test]
    fn what_is_only_added_up_holds_nothing_that_nobody_asks_for() {
        let mut with = Aggregator::new(&Settings::default());
        with.add(lease());
        assert_eq!(with.leases.len(), 1);
        let mut without = Aggregator::new(&Settings::default()).without_tables();
        without.add(lease());
        without.add(Record::Multipath(Box::new(Multipath {
            at: Time::ZERO,
            id: FlowId(1),
            from: Endpoint::Client,
            header: Vec::new(),
            length: 0,
        })));
        assert!(without.leases.is_empty() && without.pending() == 0);
        let (address, name) = (Ipv4Addr::LOCALHOST.into(), HostName::parse(b"a.example").unwrap());
        let resolved = Resolution::Pointer { address, name, lifetime: Span::from_secs(1) };
        let told = || Record::Resolved(Time::ZERO, Box::new(resolved.clone()));
        (1..MAX_COUNTED_ROWS).for_each(|_| without.add(told()));
        assert!(!without.is_full());
        without.add(told());
        assert!(without.is_full());
        without.flush(false, |_, _| {});
        assert_eq!(without.pending(), 0);
    }
}
