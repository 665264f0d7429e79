//! Bodies of requests.

use super::value::{Role, Value, encode};

/// The body of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    #[default]
    None,
    Form(Vec<(String, Value)>),
    Multipart(Vec<(String, Value)>),
    /// Pairs of a key path and a value, and the content type. A path such as `a.b` makes objects in objects; numbers
    /// remain numbers.
    Json(&'static str, Vec<(String, Value)>),
}

impl Content {
    pub(super) fn each_value(&mut self, run: &mut impl FnMut(&mut Value)) {
        let (Self::Form(pairs) | Self::Multipart(pairs) | Self::Json(_, pairs)) = self else {
            return;
        };
        pairs.iter_mut().for_each(|(_, value)| run(value));
    }

    /// Removes the volatile values.
    pub(super) fn retain_stable(&mut self) {
        let (Self::Form(pairs) | Self::Multipart(pairs) | Self::Json(_, pairs)) = self else {
            return;
        };
        pairs.retain(|(_, value)| !value.role.is_volatile());
    }

    /// Returns the content type and the bytes.
    pub(super) fn render(&self, boundary: u64) -> (Option<String>, Vec<u8>) {
        match self {
            Self::None => (None, Vec::new()),
            Self::Form(pairs) => {
                let kind = "application/x-www-form-urlencoded; charset=UTF-8";
                (Some(kind.into()), form(pairs).into_bytes())
            }
            Self::Multipart(pairs) => {
                let boundary = format!(
                    "----WebKitFormBoundary{:016x}",
                    boundary.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                );
                let mut body = String::new();
                for (name, value) in pairs {
                    let head = format!("Content-Disposition: form-data; name=\"{name}\"");
                    body.push_str(&format!("--{boundary}\r\n{head}\r\n\r\n{}\r\n", value.text));
                }
                body.push_str(&format!("--{boundary}--\r\n"));
                (Some(format!("multipart/form-data; boundary={boundary}")), body.into_bytes())
            }
            Self::Json(kind, pairs) => (Some((*kind).to_owned()), json(pairs).into_bytes()),
        }
    }
}

pub(super) fn form(pairs: &[(String, Value)]) -> String {
    let pairs: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{}={}", encode(key), value.encoded())).collect();
    pairs.join("&")
}

fn json(pairs: &[(String, Value)]) -> String {
    let mut root = serde_json::Map::new();
    for (path, value) in pairs {
        let mut place = &mut root;
        let mut keys: Vec<&str> = path.split('.').collect();
        let last = keys.pop().unwrap_or_default();
        for key in keys {
            let below = place.entry(key).or_insert_with(|| serde_json::Map::new().into());
            match below.as_object_mut() {
                Some(object) => place = object,
                None => return String::new(),
            }
        }
        let is_number = !matches!(value.role, Role::Hex(_) | Role::Base62(_) | Role::Hash(_));
        let value = match value.text.parse::<u64>() {
            Ok(number) if is_number => number.into(),
            _ => value.text.clone().into(),
        };
        place.insert(last.to_owned(), value);
    }
    serde_json::Value::Object(root).to_string()
}
