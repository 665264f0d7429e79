//! Control group patterns of a rule.

use std::fmt;
use std::str::FromStr;

use manyways_unit::human::InvalidValue;

use super::glob::Glob;

/// Pattern for a part of a control group's path; matches the group and all groups below. With a
/// leading `/` the part must be at the start. `*` matches within one component.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cgroup {
    text: String,
    is_rooted: bool,
    components: Vec<Glob>,
}

impl FromStr for Cgroup {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let components =
            components(text).map(Glob::exact).collect::<Result<Vec<_>, InvalidValue>>()?;
        let rooted = text.starts_with('/');
        if components.is_empty() && !rooted {
            return Err(InvalidValue::new(
                text,
                "a control group",
                "it like /user.slice, or app-firefox* for one anywhere",
            ));
        }
        Ok(Self { text: text.to_owned(), is_rooted: rooted, components })
    }
}

impl Cgroup {
    pub(super) fn matches(&self, path: &str) -> bool {
        let starts = if self.is_rooted { 1 } else { components(path).count() };
        (0..starts).any(|skipped| {
            let mut path = components(path).skip(skipped);
            self.components.iter().all(|glob| path.next().is_some_and(|one| glob.matches(one)))
        })
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty())
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_all_below_it() {
        let fits = |pattern: &str, path: &str| pattern.parse::<Cgroup>().unwrap().matches(path);
        let firefox = "/user.slice/user-1000.slice/app.slice/app-firefox-12.scope";
        assert!(fits("/user.slice", firefox) && fits("/user.slice/", "/user.slice"));
        assert!(!fits("/user", firefox) && !fits("/app.slice", firefox));
        assert!(fits("/user.slice/user-*.slice", firefox));
        assert!(!fits("/user.slice/*.scope", firefox));
        assert!(fits("app-firefox*", firefox) && fits("app.slice/app-*", firefox));
        assert!(!fits("app.slice/other", firefox) && !fits("app", firefox));
        assert!(fits("/", firefox) && fits("/", "/"));
        assert!("".parse::<Cgroup>().is_err() && "a[1]".parse::<Cgroup>().is_err());
    }
}
