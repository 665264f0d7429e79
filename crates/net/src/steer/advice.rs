//! Asks a running `manyways steer run` which networks a download uses.

use manyways_unit::Span;

use super::protocol::{EndedTransfer, SERVICE, SteerRequest, SteerResponse, TransferQuery};
use crate::control::{self, ControlSocketError};
use crate::fetch::{AdviceRequest, NoAdvice};

/// Returns a callback for [`ClientBuilder::path_advisor`](crate::fetch::ClientBuilder::path_advisor).
/// `app` is the name of the program, and `goal` that of a goal; without one, the goal of `steer run`
/// counts. A question ends after `limit`.
pub fn advisor(
    app: &str,
    goal: Option<&str>,
    limit: Span,
) -> impl Fn(&AdviceRequest) -> Result<Vec<String>, NoAdvice> + Send + Sync + 'static {
    let (app, goal) = (app.to_owned(), goal.map(str::to_owned));
    move |request| {
        let query = query(&app, goal.as_deref(), request);
        networks(control::ask_within(&SERVICE, &SteerRequest::Advise(query), limit))
    }
}

/// Reports to `steer run` the size of a download that is complete, for the sizes of later ones. Without a `steer run`
/// nothing happens.
pub fn note_ended(app: &str, host: &str, size: u64, limit: Span) {
    let (host, app) = (Some(host.to_owned()), Some(app.to_owned()));
    let request = SteerRequest::Ended(EndedTransfer { host, app, size, up: false });
    if let Err(why) = control::ask_within(&SERVICE, &request, limit) {
        tracing::debug!("the size of the download is not noted: {why}");
    }
}

fn query(app: &str, goal: Option<&str>, request: &AdviceRequest) -> TransferQuery {
    TransferQuery {
        host: Some(request.host.clone()),
        app: Some(app.to_owned()),
        size: request.remaining.map(|size| size.as_bytes()),
        up: false,
        goal: goal.map(str::to_owned),
        goal_file: None,
        both: true,
        followed: request.followed.clone(),
    }
}

fn networks(answer: Result<SteerResponse, ControlSocketError>) -> Result<Vec<String>, NoAdvice> {
    let why = match answer {
        Ok(SteerResponse::Advice { networks }) if !networks.is_empty() => return Ok(networks),
        Ok(SteerResponse::Advice { .. }) => "`manyways steer run` advises no network".to_owned(),
        Ok(SteerResponse::Refused { message, .. }) => {
            format!("`manyways steer run` does not advise ({message})")
        }
        Ok(_) => "`manyways steer run` is of another version".to_owned(),
        Err(ControlSocketError::NotRunning(service)) if control::is_run_by_root(&service) => {
            "`manyways steer run` runs as root, and answers only root".to_owned()
        }
        Err(ControlSocketError::NotRunning(_)) => "no `manyways steer run` runs here".to_owned(),
        Err(error) => {
            tracing::debug!("{error}");
            "`manyways steer run` does not answer".to_owned()
        }
    };
    Err(NoAdvice(why))
}

#[cfg(test)]
mod tests {
    use manyways_unit::Size;

    use super::*;

    #[test]
    fn the_question_is_that_of_a_download() {
        let request = AdviceRequest {
            host: "www.example.com".into(),
            remaining: Some(Size::from_bytes(7)),
            followed: vec!["lte".into()],
        };
        let query = query("manyways get", Some("fast"), &request);
        assert_eq!(SteerRequest::Advise(query.clone()).check(), Ok(()));
        assert_eq!((query.host.as_deref(), query.size), (Some("www.example.com"), Some(7)));
        assert_eq!((query.up, query.both, query.followed), (false, true, vec!["lte".to_owned()]));
    }

    #[test]
    fn whatever_is_not_advice_has_a_reason() {
        let advice = |names: &[&str]| {
            let networks = names.iter().map(|&name| name.to_owned()).collect();
            networks_of(Ok(SteerResponse::Advice { networks }))
        };
        assert_eq!(advice(&["lte", "wifi"]), Ok("lte+wifi".to_owned()));
        assert_eq!(advice(&[]), Err("`manyways steer run` advises no network".to_owned()));
        let refused = SteerResponse::Refused { message: "this process ends".into(), hint: None };
        for (answer, words) in [
            (Ok(refused), "`manyways steer run` does not advise (this process ends)"),
            (Ok(SteerResponse::Noted), "`manyways steer run` is of another version"),
            (
                Err(ControlSocketError::Io("socket".into(), std::io::ErrorKind::TimedOut.into())),
                "`manyways steer run` does not answer",
            ),
        ] {
            assert_eq!(networks_of(answer), Err(words.to_owned()));
        }
    }

    fn networks_of(answer: Result<SteerResponse, ControlSocketError>) -> Result<String, String> {
        networks(answer).map(|names| names.join("+")).map_err(|why| why.to_string())
    }
}
