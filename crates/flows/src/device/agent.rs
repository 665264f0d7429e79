//! Device of a user agent (RFC 9110, 10.1.5).

mod rules;
#[cfg(test)]
mod tests;

use super::{DeviceProperties, System};
use rules::{RULES, after_word};

/// Maximum number of bytes of a user agent that are read. The system is near the start; additions
/// of embedded browsers follow it.
pub const MAX_AGENT_LEN: usize = 1024;

/// Derives the properties of a device from a user agent. `None` if it does not identify a device,
/// like `okhttp/4.9.0`, which is common in Android applications and in servers.
pub fn user_agent(text: &str) -> Option<DeviceProperties> {
    let end = (0..=MAX_AGENT_LEN.min(text.len())).rev().find(|end| text.is_char_boundary(*end))?;
    // Spaces at both ends give each word the same delimiters.
    let text = format!(" {} ", text.get(..end)?.to_ascii_lowercase());
    let rule = RULES.iter().find(|rule| rule.matches(&text))?;
    let said = rule.version.iter().find_map(|before| version(&text, before));
    let mut properties = DeviceProperties {
        handheld: rule.handheld,
        system: rule.system,
        version: said,
        robot: rule.robot,
        confidence: rule.confidence,
    };
    match rule.system {
        Some(System::MacOs) => {
            // Since version 13, iPads report a Mac, with the version 10.15 that all browsers on
            // Macs report. An older version is a real Mac.
            if said.is_some_and(|version| version < (10, 15)) {
                properties.confidence = properties.confidence.max(0.9);
            }
            properties.version = said.filter(|version| *version != (10, 15));
        }
        // Safari 26 and later report iOS 18.
        Some(System::Ios) => {
            let browser = version(&text, " version/");
            properties.version =
                said.filter(|said| browser.is_none_or(|browser| browser.0 <= said.0));
        }
        // Chrome with a reduced user agent reports each Android as version 10 and model K.
        Some(System::Android) if text.contains("android 10; k)") => properties.version = None,
        _ => {}
    }
    Some(properties)
}

/// Returns the number after `before`, and the number after its dot or underscore. `None` if no
/// occurrence of `before` is followed by a number.
fn version(text: &str, before: &str) -> Option<(u16, u16)> {
    after_word(text, before).find_map(|rest| {
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
