//! Kinds of traffic of pages and apps.

use manyways_unit::Random;

use super::value::{Role, Value, pick, word};
use super::{Content, Template};

/// How the response of a request depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Each object has a response.
    Object,
    /// The response differs each time.
    Changing,
    /// An empty one.
    Nothing,
}

/// Draws requests.
pub(super) struct Drawing {
    pub random: Random,
    /// Seconds since 1970.
    pub now: u64,
    pub hosts: u64,
}

type Pairs = Vec<(String, Value)>;

const TIME_KEYS: &[&str] = &[
    "_",
    "ts",
    "t",
    "time",
    "timestamp",
    "cb",
    "now",
    "z",
    "utcts",
    "clientTime",
    "sent_at",
    "bt",
    "dt",
];
const TOKEN_KEYS: &[&str] = &[
    "nonce", "rid", "sid", "zx", "tok", "token", "auth", "vt", "ei", "ved", "bg", "k", "session",
    "xsrf",
];
const UUID_KEYS: &[&str] = &[
    "uuid",
    "visitor",
    "vid",
    "cid",
    "request_id",
    "trace",
    "eid",
    "pvid",
    "client-request-id",
    "msgid",
];
const RANDOM_KEYS: &[&str] =
    &["rnd", "ord", "r", "random", "correlator", "n", "rn", "rand", "cachebuster"];
const MEASURED_KEYS: &[&str] = &[
    "lt", "dur", "load", "ttfb", "dcl", "wp", "vh", "sy", "mem", "rtt", "fcp", "scroll", "w", "h",
    "y",
];
const FIXED_KEYS: &[&str] = &[
    "v", "lang", "tz", "fmt", "src", "app", "env", "os", "sr", "ul", "de", "je", "cc", "dc",
    "gdpr", "consent", "ref", "sdk", "ch", "tt", "ver", "platform", "plc", "net", "acc", "tag",
    "jsv", "hl", "gl", "ms",
];
const PAGE: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const IMAGE: &str = "image/avif,image/webp,image/*,*/*;q=0.8";
const JSON: &str = "application/json, text/plain, */*";

impl Drawing {
    /// Draws the requests of one site, of one kind.
    pub(super) fn site(&mut self) -> Vec<(Template, Reply)> {
        let count = 3 + self.random.up_to(9);
        match self.random.up_to(13) {
            0 | 1 => self.assets(count),
            2 => self.objects_of_an_api(count),
            3 => self.lists(count),
            4 => self.searches(count),
            5 | 6 => self.pixels(count),
            7 => self.posted_events(count),
            8 => self.graphql(count),
            9 => self.forms(),
            10 | 11 => self.ads(count),
            12 => self.signed_paths(count),
            _ => self.visits(count),
        }
    }

    fn value(&mut self, role: Role) -> Value {
        let text = role.draw(&mut self.random, self.now).unwrap_or_default();
        Value { text, role }
    }

    fn word(&mut self) -> String {
        word(&mut self.random).replace(' ', "-")
    }

    fn key(&mut self, keys: &[&'static str]) -> String {
        pick(&mut self.random, keys).to_owned()
    }

    /// Adds a key that is not there yet.
    fn add(&mut self, pairs: &mut Pairs, keys: &[&'static str], role: Role) {
        let (key, value) = (self.key(keys), self.value(role));
        if pairs.iter().all(|(other, _)| *other != key) {
            pairs.push((key, value));
        }
    }

    fn fixed(&mut self, pairs: &mut Pairs, count: u64) {
        for _ in 0..count {
            let text = match self.random.up_to(3) {
                0 => self.random.up_to(1_300).to_string(),
                1 => format!(
                    "{}.{}.{}",
                    self.random.up_to(9),
                    self.random.up_to(20),
                    self.random.up_to(9)
                ),
                2 => format!("https://www.{}.example/{}/", self.word(), self.word()),
                _ => self.word(),
            };
            let key = self.key(FIXED_KEYS);
            if pairs.iter().all(|(other, _)| *other != key) {
                pairs.push((key, Value::fixed(text)));
            }
        }
    }

    /// Adds one to four values that differ from run to run.
    fn volatile(&mut self, pairs: &mut Pairs) {
        for _ in 0..=self.random.up_to(3) {
            match self.random.up_to(8) {
                0 | 1 => self.add(pairs, TIME_KEYS, Role::Milliseconds),
                2 => self.add(pairs, TIME_KEYS, Role::Seconds),
                3 => self.add(pairs, TIME_KEYS, Role::Iso),
                4 => self.add(pairs, UUID_KEYS, Role::Uuid),
                5 => self.add(pairs, TOKEN_KEYS, Role::Base62(22)),
                6 => self.add(pairs, TOKEN_KEYS, Role::Hex(32)),
                7 => self.add(pairs, RANDOM_KEYS, Role::Digits(9)),
                _ => self.add(pairs, RANDOM_KEYS, Role::Fraction),
            }
        }
    }

    fn template(&mut self, method: &'static str, kind: &str, accept: &str) -> Template {
        let host =
            format!("{kind}{}.{}.example", self.random.up_to(self.hosts.max(1) - 1), self.word());
        let cookies = if self.random.chance(0.5) {
            let visit = self.value(Role::Base62(26));
            vec![("visit".to_owned(), visit), ("mode".to_owned(), Value::fixed("dark"))]
        } else {
            Vec::new()
        };
        Template {
            method,
            scheme: if self.random.chance(0.9) { "https" } else { "http" }.into(),
            authority: host,
            path: Vec::new(),
            query: None,
            content: Content::None,
            fields: vec![("User-Agent", "Agent/1.0".into()), ("Accept", accept.into())],
            cookies,
            connection: 0,
        }
    }

    fn assets(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("GET", "static", IMAGE);
        let folder = self.word();
        let role = if self.random.chance(0.3) { Role::Identifier } else { Role::Hash(20) };
        let version = self.value(Role::Number(4));
        let all = 0..count * 2;
        all.map(|_| {
            let mut template = base.clone();
            let hash = self.value(role);
            let (stem, end) =
                (self.word(), pick(&mut self.random, &[".js", ".css", ".webp", ".woff2"]));
            let file = match self.random.up_to(2) {
                0 => vec![Value::fixed(format!("{stem}.")), hash, Value::fixed(end)],
                1 => vec![hash, Value::fixed(end)],
                _ => {
                    let name = self.value(Role::Word);
                    template.query = Some(vec![("v".into(), Value::fixed(version.text.clone()))]);
                    vec![name, Value::fixed(end)]
                }
            };
            template.path =
                vec![vec![Value::fixed(folder.clone())], vec![Value::fixed("dist")], file];
            (template, Reply::Object)
        })
        .collect()
    }

    fn objects_of_an_api(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("GET", "api", JSON);
        let things = self.word();
        let role = match self.random.up_to(3) {
            0 => Role::Identifier,
            1 => Role::Word,
            _ => Role::Number(6),
        };
        let in_path = self.random.chance(0.6);
        let below = self.random.chance(0.3).then(|| self.word());
        let key = self.key(&["id", "item_id", "productId", "sku", "user", "doc", "article"]);
        let mut rest = Vec::new();
        let fixed = self.random.up_to(3);
        self.fixed(&mut rest, fixed);
        (0..count)
            .map(|_| {
                let mut template = base.clone();
                let object = self.value(role);
                let mut pairs = rest.clone();
                template.path = vec![vec![Value::fixed("v2")], vec![Value::fixed(things.clone())]];
                if in_path {
                    template.path.push(vec![object]);
                } else {
                    pairs.push((key.clone(), object));
                }
                template.path.extend(below.clone().map(|word| vec![Value::fixed(word)]));
                if self.random.chance(0.5) {
                    self.add(&mut pairs, TIME_KEYS, Role::Milliseconds);
                }
                template.query = (!pairs.is_empty()).then_some(pairs);
                (template, Reply::Object)
            })
            .collect()
    }

    fn lists(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("GET", "api", JSON);
        let (path, key) =
            (self.word(), self.key(&["page", "offset", "start", "pg", "skip", "from", "p"]));
        let mut rest = vec![("category".to_owned(), Value::fixed(self.word()))];
        self.fixed(&mut rest, 2);
        (0..count)
            .map(|number| {
                let mut template = base.clone();
                let mut pairs = rest.clone();
                let page = Value { text: (number + 1).to_string(), role: Role::Number(3) };
                pairs.insert(1, (key.clone(), page));
                self.volatile(&mut pairs);
                template.path = vec![vec![Value::fixed(path.clone())]];
                template.query = Some(pairs);
                (template, Reply::Object)
            })
            .collect()
    }

    fn searches(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let accept = if self.random.chance(0.5) { PAGE } else { JSON };
        let base = self.template("GET", "www", accept);
        let key = self.key(&["q", "term", "query", "s", "text", "keywords", "input"]);
        let mut rest = Vec::new();
        let fixed = self.random.up_to(4);
        self.fixed(&mut rest, fixed);
        (0..count)
            .map(|_| {
                let mut template = base.clone();
                let mut pairs = vec![(key.clone(), self.value(Role::Word))];
                pairs.extend(rest.clone());
                if self.random.chance(0.6) {
                    self.volatile(&mut pairs);
                }
                template.path = vec![vec![Value::fixed("search")]];
                template.query = Some(pairs);
                (template, Reply::Object)
            })
            .collect()
    }

    fn pixels(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("GET", "stats", IMAGE);
        let mut account = Vec::new();
        let fixed = 4 + self.random.up_to(12);
        self.fixed(&mut account, fixed);
        let path = pick(&mut self.random, &["collect", "pixel.gif", "ping", "b"]);
        (0..count)
            .map(|number| {
                let mut template = base.clone();
                let mut pairs = account.clone();
                pairs.push((
                    "ev".into(),
                    Value::fixed(["view", "click", "scroll"][number as usize % 3]),
                ));
                self.volatile(&mut pairs);
                self.volatile(&mut pairs);
                for _ in 0..self.random.up_to(3) {
                    self.add(&mut pairs, MEASURED_KEYS, Role::Measured(3_000));
                }
                if self.random.chance(0.3) {
                    self.add(&mut pairs, &["seq", "_s", "count", "hit"], Role::Counter);
                }
                template.path = vec![vec![Value::fixed(path)]];
                template.query = Some(pairs);
                (template, Reply::Nothing)
            })
            .collect()
    }

    fn posted_events(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("POST", "events", "*/*");
        let kind =
            if self.random.chance(0.5) { "application/json" } else { "text/plain;charset=UTF-8" };
        let application = self.word();
        (0..count)
            .map(|number| {
                let mut template = base.clone();
                let name = ["open", "view", "tap", "error"][number as usize % 4];
                let mut pairs: Pairs = vec![
                    ("app.name".into(), Value::fixed(application.clone())),
                    ("app.version".into(), Value::fixed("3.14.1")),
                    ("event".into(), Value::fixed(name)),
                    ("sent".into(), self.value(Role::Iso)),
                    ("context.session".into(), self.value(Role::Uuid)),
                    ("context.locale".into(), Value::fixed("en-GB")),
                    ("message_id".into(), self.value(Role::Uuid)),
                ];
                if self.random.chance(0.5) {
                    pairs.push(("timing.duration".into(), self.value(Role::Measured(9_000))));
                }
                template.path = vec![vec![Value::fixed("v1")], vec![Value::fixed("track")]];
                template.content = Content::Json(kind, pairs);
                (template, Reply::Nothing)
            })
            .collect()
    }

    fn graphql(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let post = self.template("POST", "graph", JSON);
        let get = Template { method: "GET", ..post.clone() };
        let operations: Vec<(String, Value)> =
            (0..3).map(|_| (self.word(), self.value(Role::Hash(64)))).collect();
        (0..count * 2)
            .map(|number| {
                let (name, hash) = &operations[number as usize % 3];
                let variable = ["id", "first", "slug"][number as usize % 3];
                let role = if variable == "slug" { Role::Word } else { Role::Number(5) };
                let object = self.value(role);
                let hash = Value::fixed(hash.text.clone());
                let path = vec![vec![Value::fixed("graphql")]];
                if number % 4 == 3 {
                    let variables = format!("{{\"{variable}\":\"{}\"}}", object.text);
                    let extensions = format!(
                        "{{\"persistedQuery\":{{\"version\":1,\"sha256Hash\":\"{}\"}}}}",
                        hash.text
                    );
                    let pairs = vec![
                        ("operationName".to_owned(), Value::fixed(name.clone())),
                        ("variables".to_owned(), Value::fixed(variables)),
                        ("extensions".to_owned(), Value::fixed(extensions)),
                    ];
                    return (Template { path, query: Some(pairs), ..get.clone() }, Reply::Object);
                }
                let mut pairs: Pairs = vec![
                    ("operationName".into(), Value::fixed(name.clone())),
                    (format!("variables.{variable}"), object),
                    ("extensions.persistedQuery.version".into(), Value::fixed("1")),
                    ("extensions.persistedQuery.sha256Hash".into(), hash),
                ];
                if self.random.chance(0.3) {
                    pairs.push(("variables.requestedAt".into(), self.value(Role::Milliseconds)));
                }
                let content = Content::Json("application/json", pairs);
                (Template { path, content, ..post.clone() }, Reply::Object)
            })
            .collect()
    }

    fn forms(&mut self) -> Vec<(Template, Reply)> {
        let base = self.template("POST", "www", PAGE);
        let key =
            self.key(&["csrf_token", "_token", "authenticity_token", "__RequestVerificationToken"]);
        let token = if self.random.chance(0.5) { Role::Base64(43) } else { Role::Hex(40) };
        let login: Pairs = vec![
            ("username".into(), Value::fixed(self.word())),
            ("password".into(), Value::fixed(self.word())),
            (key.clone(), self.value(token)),
            ("next".into(), Value::fixed("/home")),
        ];
        let path = |word: &str| vec![vec![Value::fixed("account")], vec![Value::fixed(word)]];
        let mut all = vec![(
            Template { path: path("login"), content: Content::Form(login), ..base.clone() },
            Reply::Changing,
        )];
        for _ in 0..4 {
            let comment: Pairs = vec![
                (key.clone(), self.value(token)),
                ("article".into(), self.value(Role::Number(5))),
                ("comment".into(), self.value(Role::Word)),
            ];
            let content = if self.random.chance(0.5) {
                Content::Multipart(comment)
            } else {
                Content::Form(comment)
            };
            all.push((Template { path: path("comment"), content, ..base.clone() }, Reply::Object));
        }
        all
    }

    fn ads(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("GET", "ads", "*/*");
        let mut page = Vec::new();
        let fixed = 15 + self.random.up_to(25);
        self.fixed(&mut page, fixed);
        let correlator = self.value(Role::Digits(16));
        let key = self.key(&["iu", "slot", "pos", "unit", "plid"]);
        (0..count)
            .map(|number| {
                let mut template = base.clone();
                let mut pairs = page.clone();
                let unit = Value { text: (number * 7 + 1).to_string(), role: Role::Number(3) };
                pairs.insert(2, (key.clone(), unit));
                pairs.push(("sz".into(), Value::fixed("300x250|728x90")));
                pairs.push(("correlator".into(), correlator.clone()));
                self.volatile(&mut pairs);
                self.volatile(&mut pairs);
                for _ in 0..self.random.up_to(4) {
                    self.add(&mut pairs, MEASURED_KEYS, Role::Measured(2_000));
                }
                template.path = vec![vec![Value::fixed("gampad")], vec![Value::fixed("ads")]];
                template.query = Some(pairs);
                (template, Reply::Object)
            })
            .collect()
    }

    fn signed_paths(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("GET", "cdn", "*/*");
        let (title, in_path) = (self.value(Role::Hash(12)), self.random.chance(0.4));
        let signature: Pairs = vec![
            ("Expires".into(), self.value(Role::Seconds)),
            ("Signature".into(), self.value(Role::Base64(64))),
            ("Key-Pair-Id".into(), Value::fixed("APKAIE5G5CRDK6RD3PGA")),
        ];
        let grant = vec![
            Value::fixed("exp="),
            self.value(Role::Seconds),
            Value::fixed("~acl=!*~hmac="),
            self.value(Role::Hex(64)),
        ];
        (0..count)
            .map(|number| {
                let mut template = base.clone();
                let segment = Value { text: (number + 1).to_string(), role: Role::Number(3) };
                template.path = vec![
                    vec![title.clone()],
                    vec![Value::fixed("seg"), segment, Value::fixed(".m4s")],
                ];
                if in_path {
                    template.path.insert(0, grant.clone());
                } else {
                    template.query = Some(signature.clone());
                }
                (template, Reply::Object)
            })
            .collect()
    }

    /// Paths with the identifier of a visit.
    fn visits(&mut self, count: u64) -> Vec<(Template, Reply)> {
        let base = self.template("GET", "app", JSON);
        let word = pick(&mut self.random, &["session", "sessions", "visit"]);
        let visit = self.value(Role::Uuid);
        (0..count)
            .map(|number| {
                let mut template = base.clone();
                let last = format!("{}-{number}", self.word());
                template.path =
                    vec![vec![Value::fixed(word)], vec![visit.clone()], vec![Value::fixed(last)]];
                if number == 0 {
                    let stamp = self.value(Role::HttpDate);
                    template.query = Some(vec![("since".into(), stamp)]);
                }
                let reply = if number % 3 == 0 { Reply::Changing } else { Reply::Object };
                (template, reply)
            })
            .collect()
    }
}
