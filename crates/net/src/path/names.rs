//! Name resolution of a path.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use super::plain;
use crate::resolve::{PathResolver, ResolveError};

/// Resolves names over one path.
pub trait Names: Send + Sync {
    /// Returns the addresses of `host`, the preferred one first, or the reason why there are none.
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// Result of [`Names::lookup`].
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupError>> + Send + 'a>>;

/// Why a name has no addresses.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The name servers of the path return none.
    #[error(transparent)]
    Resolver(#[from] ResolveError),
    /// The host's own resolver fails.
    #[error("the name {host} was not found: {}", system_reason(.error))]
    System { host: String, error: Arc<io::Error> },
    /// A table does not contain the name.
    #[error("the name {host} does not exist")]
    Unknown { host: String },
}

impl LookupError {
    /// Whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Resolver(error) => error.is_retryable(),
            // The system reports no reliable distinction between temporary and permanent errors.
            Self::System { .. } => true,
            Self::Unknown { .. } => false,
        }
    }
}

/// Returns the text after the last colon of `failed to lookup address information: Name or service
/// not known`.
fn system_reason(error: &io::Error) -> String {
    plain(error).rsplit(": ").next().unwrap_or_default().to_lowercase()
}

impl Names for PathResolver {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move { Ok(PathResolver::lookup(self, host).await?) })
    }
}

/// The host's own resolver, `getaddrinfo`.
#[derive(Clone, Copy, Debug)]
pub struct HostResolver;

impl Names for HostResolver {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await.map_err(|error| {
                LookupError::System { host: host.to_owned(), error: Arc::new(error) }
            })?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A table of names: for tests, and to assign a name to a chosen server.
impl Names for HashMap<String, Vec<IpAddr>> {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        let found = self.get(host).cloned();
        let found = found.ok_or_else(|| LookupError::Unknown { host: host.to_owned() });
        Box::pin(std::future::ready(found))
    }
}
