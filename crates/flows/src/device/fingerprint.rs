//! Fingerprints of devices: DHCP requests and TLS ClientHellos. Both tables are small and contain
//! only published fingerprints on which sources agree. Programs imitate each other, so no
//! fingerprint is certain.

use super::{DeviceProperties, System};

/// Derives the properties of a device from the parameter request list of a DHCP client (option 55,
/// RFC 2132, 9.8), for example `1,3,6,15`, and its vendor class (option 60). `None` if neither is
/// known, or if they contradict each other.
pub fn dhcp(parameters: Option<&str>, vendor: Option<&str>) -> Option<DeviceProperties> {
    let by_list = parameters.and_then(by_parameters);
    let by_vendor = vendor.and_then(by_vendor);
    let (Some(list), Some(class)) = (by_list, by_vendor) else { return by_vendor.or(by_list) };
    Some(DeviceProperties {
        system: Some(list.system?.combine(class.system?)?),
        handheld: class.handheld.or(list.handheld),
        version: class.version.or(list.version),
        robot: false,
        confidence: class.confidence.max(list.confidence),
    })
}

/// Meaning of a JA4 fingerprint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TlsClient {
    /// The TLS library, or the program with its own TLS implementation.
    pub library: &'static str,
    /// `None` if the library runs on several systems, as most do.
    pub device: Option<DeviceProperties>,
}

/// Looks up the JA4 fingerprint of a TLS client, for example
/// `t13d1516h2_8daaf6152771_02713d6af862`. Only the second part counts, the cipher suites, because
/// they change least between versions.
pub fn ja4(text: &str) -> Option<TlsClient> {
    let mut parts = text.split('_');
    let (_, ciphers) = (parts.next()?, parts.next()?);
    let (_, library, system) = CIPHER_HASHES.iter().find(|(known, ..)| *known == ciphers)?;
    let device = system.map(|system| properties(system, None, 0.5));
    Some(TlsClient { library, device })
}

/// Hash of the cipher suites, their library, and the only system with this library.
const CIPHER_HASHES: &[(&str, &str, Option<System>)] = &[
    ("8daaf6152771", "chromium", None),
    ("5b57614c22b0", "firefox", None),
    // All browsers on iOS; Safari and CFNetwork on all systems of Apple.
    ("a09f3c656075", "apple", Some(System::Apple)),
];

/// Complete parameter request lists. Of Apple's lists, those of Macs include NetBIOS; the others
/// are also sent by Apple TV and Apple Watch. Android's lists are also sent by televisions.
#[rustfmt::skip]
const PARAMETER_LISTS: &[(&str, System, Option<bool>, f64)] = &[
    ("1,3,6,15,119,252", System::Ios, Some(true), 0.6),
    ("1,121,3,6,15,119,252", System::Ios, Some(true), 0.6),
    ("1,121,3,6,15,114,119,252", System::Ios, Some(true), 0.6),
    ("1,121,3,6,15,108,114,119,252", System::Ios, Some(true), 0.6),
    ("1,3,6,15,119,95,252,44,46", System::MacOs, Some(false), 0.7),
    ("1,3,6,15,119,95,252,44,46,47", System::MacOs, Some(false), 0.7),
    ("1,121,3,6,15,119,252,95,44,46", System::MacOs, Some(false), 0.7),
    ("1,121,3,6,15,114,119,252,95,44,46", System::MacOs, Some(false), 0.7),
    ("1,121,3,6,15,108,114,119,252,95,44,46", System::MacOs, Some(false), 0.7),
    ("1,33,3,6,15,28,51,58,59", System::Android, Some(true), 0.6),
    ("1,121,33,3,6,15,28,51,58,59,119", System::Android, Some(true), 0.6),
    ("1,33,3,6,15,26,28,51,58,59", System::Android, Some(true), 0.6),
    ("1,3,6,15,26,28,51,58,59,43", System::Android, Some(true), 0.6),
    ("1,3,6,15,26,28,51,58,59,43,114", System::Android, Some(true), 0.6),
    ("1,3,6,15,26,28,51,58,59,43,114,108", System::Android, Some(true), 0.6),
    ("1,15,3,6,44,46,47,31,33,249,43", System::Windows, Some(false), 0.8),
    ("1,15,3,6,44,46,47,31,33,249,43,252", System::Windows, Some(false), 0.8),
    ("1,15,3,6,44,46,47,31,33,121,249,43", System::Windows, Some(false), 0.8),
    ("1,15,3,6,44,46,47,31,33,121,249,43,252", System::Windows, Some(false), 0.8),
    ("1,15,3,6,44,46,47,31,33,121,249,252,43", System::Windows, Some(false), 0.8),
    ("1,3,6,15,31,33,43,44,46,47,121,249,252", System::Windows, Some(false), 0.8),
    ("1,3,6,15,31,33,43,44,46,47,119,121,249,252", System::Windows, Some(false), 0.8),
    ("1,28,2,3,15,6,119,12,44,47,26,121,42", System::Linux, None, 0.6),
    ("1,28,2,3,15,6,119,12,44,47,26,121,42,121,249,33,252,42", System::Linux, None, 0.6),
];

fn by_parameters(list: &str) -> Option<DeviceProperties> {
    // Some logs have spaces. An option has at most 255 numbers.
    let list: String = list.chars().filter(|c| *c != ' ').take(1024).collect();
    let (_, system, handheld, confidence) =
        PARAMETER_LISTS.iter().find(|(known, ..)| *known == list)?;
    Some(properties(*system, *handheld, *confidence))
}

fn by_vendor(class: &str) -> Option<DeviceProperties> {
    if let Some(version) = class.strip_prefix("android-dhcp-") {
        // Televisions send this class too.
        let version = version.split('.').next().and_then(|major| major.parse().ok());
        let android = properties(System::Android, Some(true), 0.75);
        return Some(DeviceProperties { version: version.map(|major| (major, 0)), ..android });
    }
    if class == "MSFT 5.0" {
        return Some(properties(System::Windows, Some(false), 0.8));
    }
    // With the kernel after it: "dhcpcd-9.4.1:Linux-6.1.21:x86_64:GenuineIntel". Without the
    // kernel, the class is that of Android up to version 5, and of other systems.
    if class.starts_with("dhcpcd-") && class.contains(":Linux-") {
        return Some(properties(System::Linux, None, 0.6));
    }
    // BusyBox: access points, lamps, cameras.
    class.starts_with("udhcp ").then(|| properties(System::Linux, None, 0.5))
}

fn properties(system: System, handheld: Option<bool>, confidence: f64) -> DeviceProperties {
    DeviceProperties { handheld, system: Some(system), version: None, robot: false, confidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(list: Option<&str>, vendor: Option<&str>) -> Option<(Option<System>, Option<bool>)> {
        dhcp(list, vendor).map(|properties| (properties.system, properties.handheld))
    }

    #[test]
    fn lists_and_classes_tell_the_system() {
        let phone = Some((Some(System::Ios), Some(true)));
        assert_eq!(derived(Some("1,121,3,6,15,119,252"), None), phone);
        assert_eq!(derived(Some("1, 121, 3, 6, 15, 119, 252"), None), phone);
        let mac = Some((Some(System::MacOs), Some(false)));
        assert_eq!(derived(Some("1,121,3,6,15,119,252,95,44,46"), None), mac);
        let android = dhcp(None, Some("android-dhcp-13")).unwrap();
        assert_eq!((android.system, android.version), (Some(System::Android), Some((13, 0))));
        assert_eq!(derived(None, Some("MSFT 5.0")).unwrap().0, Some(System::Windows));
        assert_eq!(derived(None, Some("dhcpcd-9.4.1:Linux-6.1:x86_64:X")).unwrap().1, None);
    }

    #[test]
    fn what_is_not_known_in_full_tells_nothing() {
        for list in ["", "1", "1,121,3,6,15,119,252,1", "1,121,3,6,15,119", "x"] {
            assert_eq!(derived(Some(list), None), None, "{list}");
        }
        for vendor in ["", "dhcpcd-5.5.6", "MSFT 5.07", "anything"] {
            assert_eq!(derived(None, Some(vendor)), None, "{vendor}");
        }
        assert_eq!(derived(None, None), None);
    }

    #[test]
    fn both_together_are_surer_and_contradictions_tell_nothing() {
        let list = "1,3,6,15,26,28,51,58,59,43";
        let both = dhcp(Some(list), Some("android-dhcp-11")).unwrap();
        assert_eq!((both.version, both.confidence), (Some((11, 0)), 0.75));
        assert_eq!(derived(Some(list), Some("MSFT 5.0")), None);
        assert_eq!(derived(Some("9,9"), Some("MSFT 5.0")).unwrap().0, Some(System::Windows));
    }

    #[test]
    fn most_fingerprints_of_tls_tell_no_system() {
        let chrome = ja4("t13d1516h2_8daaf6152771_02713d6af862").unwrap();
        assert_eq!((chrome.library, chrome.device), ("chromium", None));
        let safari = ja4("t13d2014h2_a09f3c656075_14788d8d241b").unwrap();
        let told = safari.device.unwrap();
        assert_eq!((told.system, told.handheld), (Some(System::Apple), None));
        assert_eq!(ja4("t13d1516h2_000000000000_02713d6af862"), None);
        assert_eq!(ja4(""), None);
    }
}
