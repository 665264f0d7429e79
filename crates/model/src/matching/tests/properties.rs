use proptest::prelude::*;

use super::super::mutations::{Parameters, index, population};
use super::super::{Index, Recorded, Request, Rule, Session};

fn small() -> Parameters {
    Parameters { recorded: 60, repeated: 0.3, ..Parameters::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn recorded_requests_in_recorded_order_find_themselves(seed in 1_u64..=20) {
        let recorded = population(&small(), seed);
        let index = index(Rule::Ours, &recorded);
        let mut session = Session::new();
        for (id, sample) in recorded.iter().enumerate() {
            let fields = sample.rendered.borrowed_fields();
            let answer = index.find(&mut session, &sample.rendered.request(&fields));
            prop_assert_eq!(answer.hit().map(|hit| hit.id), Some(id));
        }
    }

    #[test]
    fn the_order_of_query_keys_changes_nothing(seed in 1_u64..=20, turn in 0_usize..40) {
        let recorded = population(&small(), seed);
        let index = index(Rule::Ours, &recorded);
        for sample in &recorded {
            let Some(query) = &sample.rendered.query else { continue };
            let mut parts: Vec<&str> = query.split('&').collect();
            let length = parts.len();
            parts.rotate_left(turn % length);
            let turned = parts.join("&");
            let fields = sample.rendered.borrowed_fields();
            let request = sample.rendered.request(&fields);
            let turned = Request { query: Some(turned.as_bytes()), ..request };
            let (a, b) = (&mut Session::new(), &mut Session::new());
            prop_assert_eq!(index.find(a, &request), index.find(b, &turned));
        }
    }

    #[test]
    fn another_method_or_host_never_matches(seed in 1_u64..=20) {
        let recorded = population(&small(), seed);
        let index = index(Rule::Ours, &recorded);
        for sample in &recorded {
            let fields = sample.rendered.borrowed_fields();
            let request = sample.rendered.request(&fields);
            let put = Request { method: "PUT", ..request };
            let elsewhere = Request { authority: "other.example", ..request };
            prop_assert_eq!(index.find(&mut Session::new(), &put).hit(), None);
            prop_assert_eq!(index.find(&mut Session::new(), &elsewhere).hit(), None);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_and_find_themselves(
        paths in prop::collection::vec((any::<Vec<u8>>(), any::<Option<Vec<u8>>>(), any::<Vec<u8>>()), 1..8),
        authority in ".{0,12}",
        kind in prop::sample::select(vec![
            "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=\"a", "multipart/form-data; boundary=a", "",
        ]),
    ) {
        let fields = [("Content-Type", kind.as_bytes()), ("Cookie", &paths[0].0[..])];
        let requests: Vec<Request<'_>> = paths
            .iter()
            .map(|(path, query, body)| Request {
                method: "GET", scheme: "https", authority: &authority, path, query: query.as_deref(), fields: &fields, body,
                connection: None,
            })
            .collect();
        let recorded = requests.iter().enumerate().map(|(id, request)| Recorded { id, request: *request, ..Recorded::default() });
        let index = Index::new(Rule::Ours, recorded);
        let (mut first, mut second) = (Session::new(), Session::new());
        for (id, request) in requests.iter().enumerate() {
            let answer = index.find(&mut first, request);
            prop_assert_eq!(answer.hit().map(|hit| hit.id), Some(id));
            prop_assert_eq!(index.find(&mut second, request), answer);
            let without = Request { query: None, body: b"", ..*request };
            let _ = index.explain(&without);
        }
    }
}
