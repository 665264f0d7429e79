//! The matcher of a replay: requests from any bytes.

use manyways_model::matching::{Answer, Index, Recorded, Request, Rule, Session};

pub(super) const WORDS: &[&str] = &[
    "GET https://a.example/",
    "POST https://a.example/x ",
    "HEAD https://a.example/x",
    "?id=1&_=1575346576063",
    "&a=%FF",
    ";ord=1",
    "/session/e81184e9-1a6c-4ef3-9f99-f160551a7dfa",
    "{\"variables\":{\"id\":1}}",
    "[[[[",
    "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n",
    "Tue, 14 Nov 2023 22:13:20 GMT",
    "0.1234567890",
];

/// Recorded requests, one in each line, find themselves in recorded order; a request that differs has
/// the same answer each time, and an explanation.
pub(super) fn matcher(bytes: &[u8]) {
    let (kinds, lines) = bytes.split_at(usize::from(!bytes.is_empty()));
    let kind = kinds.first().map_or(0, |byte| byte % 4);
    let kinds: [&[u8]; 4] = [
        b"application/json",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=b",
        b"",
    ];
    let fields = [("Content-Type", kinds[usize::from(kind)]), ("Cookie", lines)];
    let requests: Vec<Request<'_>> = lines
        .split(|byte| *byte == b'\n')
        .take(64)
        .map(|line| {
            let mut parts = line.splitn(3, |byte| *byte == b' ');
            let method =
                parts.next().and_then(|method| std::str::from_utf8(method).ok()).unwrap_or("GET");
            let target = parts.next().unwrap_or_default();
            let url =
                std::str::from_utf8(target).ok().and_then(|url| Request::from_url(method, url));
            let bare = Request {
                method,
                scheme: "http",
                path: target,
                query: Some(line),
                ..Request::default()
            };
            let body = parts.next().unwrap_or_default();
            Request {
                fields: &fields,
                body,
                connection: body.first().map(|byte| u64::from(*byte)),
                ..url.unwrap_or(bare)
            }
        })
        .collect();
    let recorded = || {
        let all = requests.iter().enumerate();
        all.map(|(id, request)| Recorded {
            id,
            request: *request,
            status: None,
            response: Some(id as u64 % 3),
        })
    };
    for rule in [Rule::Ours, Rule::Mahimahi { user_agent: true }] {
        let index = Index::new(rule, recorded());
        let (mut first, mut second) = (Session::new(), Session::new());
        for (id, request) in requests.iter().enumerate() {
            let answer = index.find(&mut first, request);
            if rule == Rule::Ours {
                assert_eq!(answer.hit().map(|hit| hit.id), Some(id));
            }
            let shorter = Request { query: None, ..*request };
            let other = index.find(&mut second, &shorter);
            if let Answer::Approximate { score, .. } = other {
                assert!((0.0..=1.0).contains(&score));
            }
            assert_eq!(index.explain(&shorter), index.explain(&shorter));
        }
    }
}
