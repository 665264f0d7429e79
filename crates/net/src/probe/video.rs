//! A film, played without a screen: startup, bitrates, stalls.
//!
//! [`Video`] reads the manifest (MPEG-DASH or HLS), and plays the film with the player of
//! [`manyways_model::qoe::player`], at the pace of a user: a film of two minutes takes two minutes. The
//! pictures only; sound is not fetched. dash.js in a headless Chromium can play it instead, for a comparison.

mod browser;
mod document;
mod playback;
mod report;
mod source;

use manyways_model::probe::cost::{Plan, Transfer};
use manyways_model::qoe::player::Config;
use manyways_unit::{Size, Span};

pub use self::browser::DashJs;
pub use self::document::SessionDocument;
pub(super) use self::document::VideoDocument;
use self::playback::{Downloads, Playback};
pub use self::report::{Carried, VideoReport};
pub use self::source::{FilmFacts, RungFacts};
use super::contract::{InvalidParameter, Probe, ProbeError, Run, Running, lookup};
use super::network::Network;
use super::report::Measurement;
use crate::fetch::{self, Client, Location, Scheduler};
use crate::path::{PathSpec, Trust};

/// A film, and how it is played.
#[derive(Clone, Debug)]
pub struct Video {
    /// URL of the manifest.
    pub location: Location,
    pub player: Config,
    /// So much of the film is played.
    pub duration: Span,
    /// The probe ends after this time, also without the end of the film.
    pub timeout: Span,
    /// Maximum number of received bytes.
    pub max_bytes: Size,
    pub trust: Trust,
    pub carriage: Carriage,
    pub played_by: FilmPlayer,
}

/// The program that plays a film.
#[derive(Clone, Debug, Default)]
pub enum FilmPlayer {
    /// [`manyways_model::qoe::player`].
    #[default]
    Manyways,
    /// With its own thresholds, of [`Config`] only the rule, the maximum level of the buffer and whether
    /// it may abandon downloads.
    DashJs(DashJs),
}

/// The connections that carry the film.
#[derive(Clone, Debug)]
pub enum Carriage {
    /// Those of one network.
    Network,
    /// Multipath TCP of the kernel, which selects the networks.
    KernelMptcp,
    /// Those of several networks at once, as in `manyways get`.
    Together { scheduler: Scheduler, networks: Vec<Network> },
}

impl Video {
    /// Bytes of the connections of a network, beside those of the film.
    const OVERHEAD: Size = Size::from_kib(256);

    pub fn new(location: Location) -> Self {
        Self {
            location,
            player: Config::default(),
            duration: Span::from_secs(120),
            timeout: Span::from_secs(300),
            max_bytes: Size::from_bytes(500_000_000),
            trust: Trust::System,
            carriage: Carriage::Network,
            played_by: FilmPlayer::default(),
        }
    }

    fn url(&self) -> String {
        let origin = self.location.origin();
        format!("{}://{}{}", origin.scheme(), origin.authority(), self.location.target())
    }

    fn client(&self, run: &Run) -> Result<Client, ProbeError> {
        let (paths, scheduler): (Vec<PathSpec>, _) = match &self.carriage {
            Carriage::Network => (vec![run.path().clone()], Scheduler::default()),
            Carriage::KernelMptcp => (vec![PathSpec::kernel_mptcp()], Scheduler::default()),
            Carriage::Together { scheduler, networks } => {
                (networks.iter().map(|network| network.path().clone()).collect(), *scheduler)
            }
        };
        let config = fetch::Config { scheduler, ..fetch::Config::default() };
        let builder = Client::builder().paths(paths).trust(self.trust.clone()).config(config);
        builder.build().map_err(|error| ProbeError::Video(error.to_string()))
    }

    async fn measure(&self, run: &mut Run) -> Result<(), ProbeError> {
        let is_own = matches!(self.played_by, FilmPlayer::Manyways);
        if !is_own || !matches!(self.carriage, Carriage::Network) {
            run.own_all_traffic();
        }
        run.spend(Self::OVERHEAD, Self::OVERHEAD)?;
        let is_together = matches!(self.carriage, Carriage::Together { .. });
        let mut downloads = Downloads::new(self.client(run)?, is_together);
        let mut report = VideoReport::default();
        let source =
            source::read(run, &mut downloads, &self.url(), self.duration, &mut report).await?;
        report.facts = source.facts.clone();
        run.report(Measurement::Video(report.clone()));
        match &self.played_by {
            FilmPlayer::Manyways => {
                Playback::new(run, downloads, &source, &self.player, report).play().await
            }
            FilmPlayer::DashJs(dash) => {
                drop(downloads);
                report.protocol = None;
                browser::play(self, dash, run, &source, report).await
            }
        }
    }
}

impl Probe for Video {
    fn name(&self) -> &'static str {
        "video"
    }

    fn target(&self) -> String {
        self.url()
    }

    fn plan(&self) -> Result<Plan, InvalidParameter> {
        let refuse = |text: &str| Err(InvalidParameter(text.to_owned()));
        if self.duration.is_zero() {
            return refuse("the duration of the film is zero");
        }
        if self.timeout < self.duration {
            return refuse("the timeout is shorter than the film");
        }
        if self.max_bytes.as_bytes() > u64::MAX / 4 {
            return refuse("the maximum number of bytes is too large");
        }
        let mut duration = self.timeout;
        let mut up_share = 20;
        if matches!(self.played_by, FilmPlayer::DashJs(_)) {
            if !DashJs::has_rule(self.player.rule) {
                return refuse(&format!("dash.js has only the rules {}", DashJs::RULES));
            }
            if !matches!(self.carriage, Carriage::Network) {
                return refuse("dash.js plays a film over one network only");
            }
            duration += DashJs::OVERHEAD;
            // All packets of the interface count.
            up_share = 10;
        }
        let down = playback::packets(self.max_bytes) + Self::OVERHEAD;
        let up = Size::from_bytes(self.max_bytes.as_bytes() / up_share) + Self::OVERHEAD;
        let transfer = Transfer { start: Span::ZERO, duration, up, down };
        let host = &self.location.origin().host;
        Ok(Plan::new(vec![lookup(host)]).then(Span::ZERO, &Plan::new(vec![transfer])))
    }

    fn run<'a>(&'a self, run: &'a mut Run) -> Running<'a> {
        Box::pin(self.measure(run))
    }
}
