//! The control socket of a client.

use std::rc::Rc;

use anyhow::Result;
use manyways_net::bond::EntryPoints;
use manyways_net::bond::PolicyEnforcer;
use manyways_net::bond::control::{BondRole, ControlRequest, ControlResponse};
use manyways_net::bond::interception::SharedScope;
use manyways_net::control::{ControlServer, ControlSocketError, Response};

use super::options::Args;
use crate::failure::Failure;

/// Answers `bond status` and `bond why`, and lets other programs delay connections and choose paths.
/// If the control socket fails, the client runs without it.
pub fn start(
    args: &Args,
    intercepts: bool,
    enforcer: &PolicyEnforcer,
    scope: &SharedScope,
) -> Result<Option<ControlServer>> {
    let (enforcer, name, scope) = (enforcer.clone(), args.name.clone(), Rc::clone(scope));
    let has_proxy = args.has_proxy();
    let policy = args.policy.as_ref().map(|path| path.display().to_string());
    let service = BondRole::Client.service(&args.name);
    let service = service.map_err(|error| Failure::usage(error.to_string()))?;
    let started = ControlServer::start(&service, None, move |request| {
        let (enforcer, name, policy) = (enforcer.clone(), name.clone(), policy.clone());
        let scope = Rc::clone(&scope);
        async move {
            if matches!(request, ControlRequest::Status) {
                enforcer.find_owners().await;
            }
            let scope = scope.borrow();
            let entry_points = EntryPoints { interception: scope.as_ref(), intercepts, has_proxy };
            match request {
                ControlRequest::Status => {
                    let mut status = enforcer.status(&name, policy.as_deref());
                    status.no_path_action = enforcer.no_path_action(entry_points);
                    ControlResponse::Status(Box::new(status)).into()
                }
                ControlRequest::Why(query) => {
                    ControlResponse::Why(Box::new(enforcer.why(&query, entry_points))).into()
                }
                ControlRequest::Choose(request) => match enforcer.choose(request) {
                    Ok(()) => ControlResponse::Chosen.into(),
                    Err(error) => ControlResponse::refused(error.to_string(), error.hint()).into(),
                },
                ControlRequest::Delay(request) => match enforcer.delay(&request) {
                    Ok(grant) => grant.into(),
                    Err(error) => ControlResponse::refused(error.to_string(), error.hint()).into(),
                },
            }
        }
    });
    match started {
        Ok(control) => Ok(Some(control)),
        Err(error) => {
            eprintln!("manyways: {error}, so `bond status` does not show this client");
            if let ControlSocketError::AlreadyRunning(_) = error {
                eprintln!("hint: give this client another name with --name");
            }
            Ok(None)
        }
    }
}
