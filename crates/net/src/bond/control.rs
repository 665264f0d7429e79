//! Requests to a running client or gateway over its [control socket](crate::control), and the
//! responses.

use serde::{Deserialize, Serialize};

use super::choice::ChoiceRequest;
use super::delay_gate::{DelayGrant, DelayRequest};
use super::gateway_status::GatewayStatus;
use super::status::Status;
use super::why::{WhyQuery, WhyReport};
use crate::control::{ControlSocketError, Reply, Request, Response, Service};

/// A request to a running client or gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRequest {
    /// The status of the client or gateway.
    Status,
    /// The treatment of a destination by the client's policy.
    Why(WhyQuery),
    /// The ownership of the delay gate. The connection stays open after the response.
    Delay(DelayRequest),
    /// The choice of the paths of auto rules.
    Choose(ChoiceRequest),
}

/// The response to a [`ControlRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlResponse {
    /// The status of a client.
    Status(Box<Status>),
    /// The status of a gateway.
    GatewayStatus(GatewayStatus),
    /// The treatment of a destination.
    Why(Box<WhyReport>),
    /// The requesting program owns the delay gate.
    DelayGranted {
        /// Those of the program's rules whose connections bypass the bond; they are delayed, too.
        direct_rules: Vec<String>,
    },
    /// The choice applies.
    Chosen,
    /// The request is refused.
    Refused {
        /// The reason, as one sentence.
        message: String,
        hint: Option<String>,
    },
}

impl Request for ControlRequest {
    type Response = ControlResponse;
}

impl Response for ControlResponse {
    fn refused(message: String, hint: Option<String>) -> Self {
        Self::Refused { message, hint }
    }
}

/// The connection stays open for the owner of the delay gate.
impl From<DelayGrant> for Reply<ControlResponse> {
    fn from(grant: DelayGrant) -> Self {
        let direct_rules = grant.direct_rules.clone();
        Self::keep_open(ControlResponse::DelayGranted { direct_rules }, |stream| {
            grant.serve(stream)
        })
    }
}

/// The endpoint of a bond to which a control socket belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BondRole {
    /// The endpoint on the device.
    Client,
    /// The endpoint on a server.
    Gateway,
}

impl BondRole {
    /// Returns the client or gateway with this name.
    ///
    /// # Errors
    /// [`ControlSocketError::InvalidName`].
    pub fn service(self, name: &str) -> Result<Service, ControlSocketError> {
        match self {
            Self::Client => Service::named("bond-client", "client", name),
            Self::Gateway => Service::named("bond-gateway", "gateway", name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_gateways_have_their_own_sockets() {
        let error = |role: BondRole| {
            let service = role.service("default").unwrap();
            ControlSocketError::NotRunning(service).to_string()
        };
        assert_eq!(error(BondRole::Client), "no client that is named default runs here");
        assert_eq!(error(BondRole::Gateway), "no gateway that is named default runs here");
        let services = [BondRole::Client, BondRole::Gateway].map(|role| role.service("default"));
        let [client, gateway] = services.map(Result::unwrap);
        assert_ne!(client, gateway);
    }
}
