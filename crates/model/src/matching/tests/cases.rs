use super::super::{Answer, Index, Recorded, Request, Rule, Session};

type Field<'a> = (&'a str, &'a [u8]);

fn get(url: &str) -> Request<'_> {
    Request::from_url("GET", url).unwrap()
}

/// Requests whose responses all differ.
fn index<'a>(rule: Rule, requests: impl IntoIterator<Item = Request<'a>>) -> Index {
    Index::new(
        rule,
        requests.into_iter().enumerate().map(|(id, request)| Recorded {
            id,
            request,
            status: Some(200),
            response: Some(id as u64),
        }),
    )
}

fn ask(index: &Index, request: &Request<'_>) -> Option<usize> {
    index.find(&mut Session::new(), request).hit().map(|hit| hit.id)
}

fn ours(urls: &[&str], asked: &str) -> Option<usize> {
    ask(&index(Rule::Ours, urls.iter().map(|url| get(url))), &get(asked))
}

fn post<'a>(url: &'a str, fields: &'a [Field<'a>], body: &'a str) -> Request<'a> {
    Request { method: "POST", fields, body: body.as_bytes(), ..get(url) }
}

#[test]
fn another_object_is_a_miss() {
    assert_eq!(ours(&["https://a/x?id=123"], "https://a/x?id=124"), None);
    assert_eq!(
        ours(&["https://a/x?q=cat&lang=en&v=1&w=2"], "https://a/x?q=dog&lang=en&v=1&w=2"),
        None
    );
    assert_eq!(ours(&["https://a/x/123"], "https://a/x/124"), None);
    assert_eq!(ours(&["https://a/x?id=1"], "https://a/x"), None);
    let uuids = ["https://a/image/e81184e9-1a6c-4ef3-9f99-f160551a7dfa"];
    assert_eq!(ours(&uuids, "https://a/image/e81184e9-1a6c-4ef3-9f99-f160551a7dfb"), None);
}

#[test]
fn values_of_a_run_do_not_matter() {
    assert_eq!(ours(&["https://a/x?_=1575346576063"], "https://a/x?_=1675346576063"), Some(0));
    let session = ["https://a/session/e81184e9-1a6c-4ef3-9f99-f160551a7dfa/open"];
    assert_eq!(
        ours(&session, "https://a/session/00000000-1a6c-4ef3-9f99-f160551a7dfa/open"),
        Some(0)
    );
    let parameter = ["https://a/x;jsessionid=63812215362b0bc00d7a"];
    assert_eq!(ours(&parameter, "https://a/x;jsessionid=73812215362b0bc00d7a"), Some(0));
}

#[test]
fn a_random_value_that_alone_distinguishes_recorded_requests_names_an_object() {
    let one = ["https://a/x?w=63812215362b0bc00d7a"];
    let two = ["https://a/x?w=63812215362b0bc00d7a", "https://a/x?w=73812215362b0bc00d7a"];
    assert_eq!(ours(&one, "https://a/x?w=83812215362b0bc00d7a"), Some(0));
    assert_eq!(ours(&two, "https://a/x?w=83812215362b0bc00d7a"), None);
    assert_eq!(ours(&two, "https://a/x?w=73812215362b0bc00d7a&_=1575346576063"), Some(1));
    // Not if the responses are equal, as those of a beacon.
    let beacon = two.iter().enumerate().map(|(id, url)| Recorded {
        id,
        request: get(url),
        status: Some(204),
        response: Some(0),
    });
    let beacon = Index::new(Rule::Ours, beacon);
    assert_eq!(ask(&beacon, &get("https://a/x?w=83812215362b0bc00d7a")), Some(0));
}

#[test]
fn host_and_default_port_have_one_form() {
    assert_eq!(ours(&["https://A.example:443/x"], "https://a.EXAMPLE/x"), Some(0));
    assert_eq!(ours(&["https://a.example:444/x"], "https://a.example/x"), None);
    assert_eq!(ours(&["https://a.example/x"], "http://a.example/x"), None);
    assert_eq!(ours(&["https://a/%7Ex?a=b+c"], "https://a/~x?a=b%20c"), Some(0));
}

#[test]
fn head_range_and_conditions_are_answered_from_the_whole() {
    let index = index(Rule::Ours, [get("https://a/x")]);
    let found = |request: &Request<'_>| index.find(&mut Session::new(), request).hit().unwrap();
    assert!(found(&Request { method: "HEAD", ..get("https://a/x") }).is_head);
    assert!(found(&Request { fields: &[("range", b"bytes=0-9")], ..get("https://a/x") }).is_range);
    let condition: [Field<'_>; 1] = [("If-None-Match", b"\"1\"")];
    assert!(found(&Request { fields: &condition, ..get("https://a/x") }).is_conditional);
    assert_eq!(ask(&index, &Request { method: "POST", ..get("https://a/x") }), None);
}

#[test]
fn a_part_or_not_modified_answers_only_its_own_condition() {
    let part: [Field<'_>; 1] = [("Range", b"bytes=0-9")];
    let condition: [Field<'_>; 1] = [("If-None-Match", b"\"1\"")];
    let recorded = [(&part, 206), (&condition, 304)].into_iter().enumerate();
    let index = Index::new(
        Rule::Ours,
        recorded.map(|(id, (fields, status))| Recorded {
            id,
            request: Request { fields, ..get("https://a/x") },
            status: Some(status),
            response: None,
        }),
    );
    assert_eq!(ask(&index, &get("https://a/x")), None);
    assert_eq!(ask(&index, &Request { fields: &part, ..get("https://a/x") }), Some(0));
    assert_eq!(ask(&index, &Request { fields: &condition, ..get("https://a/x") }), Some(1));
    let other: [Field<'_>; 1] = [("Range", b"bytes=10-19")];
    assert_eq!(ask(&index, &Request { fields: &other, ..get("https://a/x") }), None);
}

#[test]
fn bodies_are_compared_by_their_pairs() {
    let form: [Field<'_>; 1] = [("Content-Type", b"application/x-www-form-urlencoded")];
    let json: [Field<'_>; 1] = [("Content-Type", b"application/json")];
    let parts: [Field<'_>; 1] = [("Content-Type", b"multipart/form-data; boundary=b1")];
    let again: [Field<'_>; 1] = [("Content-Type", b"multipart/form-data; boundary=b2")];
    let text: [Field<'_>; 1] = [("Content-Type", b"application/octet-stream")];
    let part = |b: &str, id: u8| {
        format!("--{b}\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n{id}\r\n--{b}--\r\n")
    };
    let (part1, part2, part3) = (part("b1", 1), part("b2", 1), part("b2", 2));
    let url = "https://a/x";
    let index = index(
        Rule::Ours,
        [
            post(url, &form, "user=ann&_token=63812215362b0bc00d7a"),
            post(url, &json, r#"{"id":1,"at":1575346576063}"#),
            post(url, &parts, &part1),
            post(url, &text, "abc"),
        ],
    );
    assert_eq!(ask(&index, &post(url, &form, "_token=73812215362b0bc00d7a&user=ann")), Some(0));
    assert_eq!(ask(&index, &post(url, &form, "_token=73812215362b0bc00d7a&user=bob")), None);
    assert_eq!(ask(&index, &post(url, &json, r#"{"at":1675346576063, "id":1}"#)), Some(1));
    assert_eq!(ask(&index, &post(url, &json, r#"{"at":1675346576063, "id":2}"#)), None);
    assert_eq!(ask(&index, &post(url, &again, &part2)), Some(2));
    assert_eq!(ask(&index, &post(url, &again, &part3)), None);
    assert_eq!(ask(&index, &post(url, &text, "abc")), Some(3));
    assert_eq!(ask(&index, &post(url, &text, "abd")), None);
}

#[test]
fn repeats_are_answered_in_recorded_order_and_the_last_one_stays() {
    let index = index(Rule::Ours, [get("https://a/x"), get("https://a/y"), get("https://a/x")]);
    let mut session = Session::new();
    let ids = [(); 4].map(|()| index.find(&mut session, &get("https://a/x")).hit().unwrap().id);
    assert_eq!(ids, [0, 2, 2, 2]);
    let times = ["https://a/x?_=1575346576063", "https://a/x?_=1575346577063"];
    let index = self::index(Rule::Ours, times.map(get));
    let mut session = Session::new();
    let ids = [3, 4, 5].map(|second| {
        let url = format!("https://a/x?_=167534657{second}063");
        index.find(&mut session, &get(&url)).hit().unwrap().id
    });
    assert_eq!(ids, [0, 1, 1]);
}

#[test]
fn repeats_belong_to_connections_and_to_cookies() {
    let on = |connection| Request { connection: Some(connection), ..get("https://a/x") };
    let index = index(Rule::Ours, [1, 2, 2, 1].map(on));
    let mut session = Session::new();
    let ids = [70, 80, 70, 80].map(|live| index.find(&mut session, &on(live)).hit().unwrap().id);
    assert_eq!(ids, [0, 1, 3, 2]);

    let with: [Field<'_>; 1] = [("Cookie", b"sid=1")];
    let known = Request { fields: &with, ..get("https://a/x") };
    let index = self::index(Rule::Ours, [get("https://a/x"), known]);
    let mut session = Session::new();
    let mut id = |request: &Request<'_>| index.find(&mut session, request).hit().unwrap().id;
    assert_eq!(
        [id(&known), id(&get("https://a/x")), id(&get("https://a/x")), id(&known)],
        [1, 0, 0, 1]
    );
}

#[test]
fn an_explanation_names_each_difference() {
    let index = index(Rule::Ours, [get("https://a/x?id=123&_=1575346576063"), get("https://a/y")]);
    let explanation = index.explain(&get("https://a/x?id=124&_=1675346576063"));
    let Answer::Miss { nearest: Some(nearest) } = explanation.answer else { panic!() };
    assert!(nearest.is_excluded);
    let words: Vec<String> = nearest.differences.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "query key id: `123` was recorded, `124` is asked (names an object)",
            "query key _: `1575346576063` was recorded, `1675346576063` is asked (differs in each run)",
        ]
    );
    let elsewhere = index.explain(&get("https://a/z"));
    assert_eq!(elsewhere.candidates.len(), 2);
    let words = elsewhere.candidates[0].differences[0].to_string();
    assert!(words.contains("`/z` is asked"), "{words}");
}

#[test]
fn mahimahi_takes_the_longest_common_prefix() {
    let rule = Rule::Mahimahi { user_agent: true };
    let urls =
        ["https://a/x?id=1&t=1", "https://a/x?id=2&t=1", "https://a/y", "https://a/x?id=2&t=1&u=2"];
    let index = index(rule, urls.map(get));
    assert_eq!(ask(&index, &get("https://a/x?id=2&t=9")), Some(1));
    assert_eq!(ask(&index, &get("https://a/x?id=3")), Some(0));
    assert_eq!(ask(&index, &get("https://a/x?id=2&t=1&u=2")), Some(3));
    assert_eq!(ask(&index, &get("https://a/x")), None);
    assert_eq!(ask(&index, &Request { method: "HEAD", ..get("https://a/y") }), None);
    let agent: [Field<'_>; 1] = [("User-Agent", b"b")];
    assert_eq!(ask(&index, &Request { fields: &agent, ..get("https://a/y") }), None);
}

#[test]
fn many_requests_with_many_keys_are_read_and_answered() {
    let urls: Vec<String> = (0..1_500)
        .map(|number| {
            let keys: Vec<String> =
                (0..700).map(|key| format!("k{key}={}", key * number % 10_007)).collect();
            format!("https://a/x?{}", keys.join("&"))
        })
        .collect();
    let index = index(Rule::Ours, urls.iter().map(|url| get(url)));
    assert_eq!(ask(&index, &get(&urls[1_234])), Some(1_234));
    let changed = format!("{}&_=1575346576063", urls[1_234]);
    assert_eq!(ask(&index, &get(&changed)), Some(1_234));
    let few = index.explain(&get("https://a/x?k1=1"));
    assert!(few.candidates.len() <= 16);
}
