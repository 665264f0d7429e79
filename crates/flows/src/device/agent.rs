//! What a program's name for itself tells of the device (RFC 9110, 10.1.5).

mod rules;
#[cfg(test)]
mod tests;

use super::{Sight, System};
use rules::{RULES, behind};

/// As much of a user agent is read. What says the system comes first; what embedded browsers add
/// behind it does not matter.
pub const AGENT_LIMIT: usize = 1024;

/// What a user agent tells. None when it tells nothing of the device, as `okhttp/4.9.0`, which is
/// in most applications for Android and in servers as well.
pub fn user_agent(text: &str) -> Option<Sight> {
    let end = (0..=AGENT_LIMIT.min(text.len())).rev().find(|end| text.is_char_boundary(*end))?;
    // With a space at both ends a word begins and ends alike everywhere.
    let text = format!(" {} ", text.get(..end)?.to_ascii_lowercase());
    let rule = RULES.iter().find(|rule| rule.fits(&text))?;
    let said = rule.version.iter().find_map(|before| version(&text, before));
    let mut sight = Sight {
        handheld: rule.handheld,
        system: rule.system,
        version: said,
        robot: rule.robot,
        confidence: rule.confidence,
    };
    match rule.system {
        Some(System::MacOs) => {
            // iPads have said since version 13 that they are Macs, with the 10.15 that all
            // browsers on Macs say since. An older Mac is one.
            if said.is_some_and(|version| version < (10, 15)) {
                sight.confidence = sight.confidence.max(0.9);
            }
            sight.version = said.filter(|version| *version != (10, 15));
        }
        // Safari 26 and later say that iOS is 18, but not that they are.
        Some(System::Ios) => {
            let browser = version(&text, " version/");
            sight.version = said.filter(|said| browser.is_none_or(|browser| browser.0 <= said.0));
        }
        // What Chrome says of each Android since it says less: version 10, and model K.
        Some(System::Android) if text.contains("android 10; k)") => sight.version = None,
        _ => {}
    }
    Some(sight)
}

/// The number behind these words, and the one behind its dot or underscore. None when none of the
/// places that they are at has a number behind it.
fn version(text: &str, before: &str) -> Option<(u16, u16)> {
    behind(text, before).find_map(|rest| {
        let (major, rest) = number(rest)?;
        let minor = rest.strip_prefix(['.', '_']).and_then(number).map_or(0, |(minor, _)| minor);
        Some((major, minor))
    })
}

fn number(text: &str) -> Option<(u16, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}
