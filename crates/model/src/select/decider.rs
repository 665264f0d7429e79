//! The choice for a request, with all that explains it.

use std::fmt;

use manyways_unit::{Rate, Size, Span, Time};

use super::adaptive::Monitor;
use super::closed_form::{self, LinkEstimate};
use super::energy::TransferEnergy;
use super::features::{Feature, Features, Role};
use super::history::Sizes;
use super::indicator::Indicators;
use super::model::{Carriage, Model};
use super::objective::{Goal, Prediction, Supply, Terms, expected};
use super::selector::{Candidate, DWELL, Kept, Selection, Selector};
use super::{Choice, NetworkKind};

/// Results of probes and own traffic that are older than this are not used.
const STALE: Span = Span::from_secs(600);
/// The transfer by which the result of a probe is judged as predicted or not.
const TYPICAL: Size = Size::from_bytes(100_000);
/// Least size by which a transfer of unknown end is decided upon: that of the thesis for a response
/// whose length is not announced.
const LEAST_HORIZON: Size = Size::from_bytes(100_000);
/// Half the width of the interval of ln(seconds) for a prediction in closed form: what the residuals
/// of generated walks show.
const CLOSED_FORM_WIDTH: f64 = 0.7;
/// The same for a transfer that goes on. On generated walks, long downloads got 93 % of the bytes of the
/// faster network in each second, with 0.2 as with 0.7; with the default model, which predicts whole
/// transfers, 91 %.
const RUNNING_WIDTH: f64 = 0.4;

/// A network, as a decision sees it.
#[derive(Clone, Debug)]
pub struct Network {
    pub name: String,
    pub kind: NetworkKind,
    pub monitor: Monitor,
    /// `None` if it can be used.
    pub unusable: Option<Unusable>,
    /// Of a transfer that begins now.
    pub energy: TransferEnergy,
    /// Of a byte: 1 on a metered network, 0 on others, or any price in the same unit.
    pub price: f64,
    /// Used share of the data plan, and elapsed share of its month.
    pub plan: Option<(f64, f64)>,
}

/// Why a network cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Unusable {
    /// It has no carrier, address or route.
    Down,
    /// A login page answers in place of the internet.
    Portal,
    /// The data plan is spent.
    Spent,
    /// It answers nothing.
    Silent,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "it has no carrier, address or route",
            Self::Portal => "it leads to a login page",
            Self::Spent => "its data plan is spent",
            Self::Silent => "it answers nothing",
        })
    }
}

/// A network that the user prefers for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// Its name.
    pub network: String,
    pub until: Time,
    /// Only for this application.
    pub app: Option<String>,
}

/// A transfer that is to begin, or goes on.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Sizes of the part that remains.
    pub sizes: &'a Sizes,
    pub app: Option<&'a str>,
    /// The choice that is used now.
    pub kept: Option<Kept>,
    /// Whether two networks at once can carry it.
    pub allows_both: bool,
    /// Whether it has begun, and this is about the rest of it. Then the closed form predicts: models are
    /// trained on whole transfers, while the rates of now show what the next seconds bring.
    pub goes_on: bool,
}

/// The networks, the goal and the model of decisions.
#[derive(Clone, Debug)]
pub struct Decider {
    pub goal: Goal,
    pub supply: Supply,
    pub model: Option<Model>,
    pub networks: Vec<Network>,
    pub overrides: Vec<Override>,
    /// Seconds that a change of network has cost.
    pub switching_cost: f64,
}

/// A choice with its prediction.
#[derive(Clone, PartialEq, Debug)]
pub struct Rated {
    pub choice: Choice,
    /// For the median size.
    pub prediction: Prediction,
    /// Expected over all sizes.
    pub terms: Terms,
    /// Whether the closed form predicted, because no model did.
    pub is_closed_form: bool,
    /// Whether nothing has measured a network of the choice, so that usual values stand for it.
    pub is_assumed: bool,
    /// Features of the model that were not measured.
    pub unknown: Vec<Feature>,
}

/// A decision and its reasons.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// Goal with the exponents of now.
    pub goal: Goal,
    /// Not empty; in the order of the networks.
    pub rated: Vec<Rated>,
    /// Indices are those of `rated`.
    pub selection: Selection,
    /// The network that the user prefers.
    pub preferred: Option<String>,
}

impl Decision {
    /// The choice.
    pub fn best(&self) -> &Rated {
        &self.rated[self.selection.best]
    }
}

impl Network {
    /// The role in models: each kind that is not cellular is like Wi-Fi.
    pub fn role(&self) -> Role {
        if self.kind == NetworkKind::Cellular { Role::Lte } else { Role::Wifi }
    }
}

impl Network {
    fn current(&self, now: Time, is_greedy: bool) -> Indicators {
        self.monitor.indicators().current(now, STALE, is_greedy)
    }
}

impl Decider {
    /// Selects for a request; `None` if no network can be used. An override leaves only its network,
    /// if that one can be used.
    pub fn decide(&self, now: Time, request: &Request<'_>) -> Option<Decision> {
        let usable = |index: &usize| self.networks[*index].unusable.is_none();
        let mut open: Vec<usize> = (0..self.networks.len()).filter(usable).collect();
        let preferred = self.preferred(now, request.app);
        let preferred =
            preferred.filter(|name| open.iter().any(|index| self.networks[*index].name == **name));
        if let Some(name) = preferred {
            open.retain(|index| self.networks[*index].name == *name);
        }
        let indicators: Vec<Indicators> =
            self.networks.iter().map(|one| one.current(now, request.goes_on)).collect();
        let goal = self.goal_now();
        let choices = self.choices(&open, request.allows_both);
        let rate = |choice: Choice| self.rate(&goal, choice, request, &indicators);
        let rated: Vec<Rated> = choices.into_iter().map(rate).collect();
        let candidate = |one: &Rated| Candidate {
            choice: one.choice,
            terms: one.terms,
            seconds: one.prediction.seconds,
            high: one.prediction.high,
        };
        let candidates: Vec<Candidate> = rated.iter().map(candidate).collect();
        let selector = Selector { goal, switching_cost: self.switching_cost };
        let size = request.sizes.median();
        let selection = selector.select(now, &candidates, size, request.kept)?;
        Some(Decision { goal, rated, selection, preferred: preferred.cloned() })
    }

    /// The completion time of a typical transfer over one network.
    pub(super) fn predict_alone(&self, now: Time, index: usize) -> Prediction {
        let indicators: Vec<Indicators> =
            self.networks.iter().map(|one| one.current(now, false)).collect();
        self.predict(Choice::Only(index), TYPICAL, false, &indicators).0
    }

    /// The size by which a transfer of unknown end is decided upon, such as a long download or a
    /// stream: what the fastest open network carries until the choice can be left again, but at least
    /// 100 KB. A fixed size would be far on a slow network, and near on a fast one.
    pub fn horizon(&self, now: Time) -> Size {
        let open = self.networks.iter().filter(|one| one.unusable.is_none());
        let rate = |one: &Network| LinkEstimate::of(&one.current(now, true)).rate;
        let fastest = open.map(rate).max().unwrap_or(Rate::ZERO);
        fastest.size_in(DWELL).max(LEAST_HORIZON)
    }

    /// The newest override that has not expired. One for an application comes before one for all.
    fn preferred(&self, now: Time, app: Option<&str>) -> Option<&String> {
        let is_meant = |one: &&Override| {
            now < one.until && one.app.as_deref().is_none_or(|own| Some(own) == app)
        };
        let meant = self.overrides.iter().filter(is_meant);
        meant.max_by_key(|one| one.app.is_some()).map(|one| &one.network)
    }

    /// The goal with the exponents for battery and plan; of several plans that with the highest pace.
    fn goal_now(&self) -> Goal {
        let goal = self.goal.supplied_by(self.supply);
        let plans = self.networks.iter().filter_map(|network| network.plan);
        let paced = plans.map(|(used, elapsed)| goal.with_plan(used, elapsed));
        paced.max_by(|a, b| a.money.total_cmp(&b.money)).unwrap_or(goal)
    }

    /// Each network, and each pair of a cellular and another one, with either as the first.
    fn choices(&self, open: &[usize], allows_both: bool) -> Vec<Choice> {
        let mut found: Vec<Choice> = open.iter().map(|index| Choice::Only(*index)).collect();
        if allows_both {
            for first in open {
                let others = open
                    .iter()
                    .filter(|other| self.networks[**other].role() != self.networks[*first].role());
                found.extend(others.map(|other| Choice::Both(*first, *other)));
            }
        }
        found
    }

    fn rate(
        &self,
        goal: &Goal,
        choice: Choice,
        request: &Request<'_>,
        indicators: &[Indicators],
    ) -> Rated {
        let (sizes, goes_on) = (request.sizes, request.goes_on);
        let (energy, price) = match choice {
            Choice::Only(one) => (self.networks[one].energy, self.networks[one].price),
            Choice::Both(one, other) => {
                let (one, other) = (&self.networks[one], &self.networks[other]);
                (one.energy.with(other.energy), f64::midpoint(one.price, other.price))
            }
        };
        let terms: Vec<(f64, Terms)> = sizes
            .weighted
            .iter()
            .map(|(size, weight)| {
                let prediction = self.predict(choice, *size, goes_on, indicators).0;
                (*weight, goal.terms(prediction, *size, energy, price))
            })
            .collect();
        let (prediction, model_unknown) = self.predict(choice, sizes.median(), goes_on, indicators);
        let is_assumed = choice.networks().any(|one| LinkEstimate::of(&indicators[one]).is_assumed);
        Rated {
            choice,
            prediction,
            terms: expected(&terms),
            is_closed_form: model_unknown.is_none(),
            is_assumed,
            unknown: model_unknown.unwrap_or_default(),
        }
    }

    /// The completion time, and the unknown features of the model that predicted it; without them if
    /// the closed form did.
    fn predict(
        &self,
        choice: Choice,
        size: Size,
        goes_on: bool,
        indicators: &[Indicators],
    ) -> (Prediction, Option<Vec<Feature>>) {
        let role = |index: usize| self.networks[index].role();
        let (carriage, first, second) = match choice {
            Choice::Only(one) => (Carriage::Only(role(one)), one, None),
            Choice::Both(one, other) => (Carriage::Both(role(one)), one, Some(other)),
        };
        let estimate = if goes_on { LinkEstimate::of_now } else { LinkEstimate::of };
        let second = second.map(|one| estimate(&indicators[one]));
        let closed = closed_form::seconds(estimate(&indicators[first]), second, size);
        let networks: Vec<(Role, &Indicators)> =
            choice.networks().map(|index| (role(index), &indicators[index])).collect();
        let features = Features::new(size, closed, &networks);
        let model = self.model.as_ref().filter(|_| !goes_on);
        let predicted = model.and_then(|model| model.predict(carriage, &features));
        match predicted {
            Some(predicted) => (predicted.prediction, Some(predicted.unknown)),
            None => {
                let width = if goes_on { RUNNING_WIDTH } else { CLOSED_FORM_WIDTH }.exp();
                let (low, high) = (closed / width, closed * width);
                (Prediction { seconds: closed, low, high }, None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
