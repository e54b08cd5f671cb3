//! Fuzz bodies for the server's configuration: what is accepted is accepted again as it is shown.

use std::path::Path;

use alluvium_server::config::{
    FreeSpace, Loaded, RETENTION_RULES_MAX, RetentionRules, Sources, check_free_space,
};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 3] =
    [("config_file", file), ("config_retention", retention), ("config_disk", disk)];

/// The input is two limits of the guard of a disk, each on a line. One that is accepted is accepted again as it is shown, and
/// means the same on every disk; of two that fit each other the disk warns no later than it refuses, where both can be compared.
pub fn disk(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let mut limits = text.splitn(2, '\n').map(str::parse::<FreeSpace>);
    let (Some(warn), min) = (limits.next(), limits.next()) else { return };
    for limit in [Some(&warn), min.as_ref()].into_iter().flatten().flatten() {
        let shown = limit.to_string();
        assert_eq!(shown.parse(), Ok(*limit), "{shown}");
    }
    if let (Ok(warn), Some(Ok(min))) = (warn, min) {
        drop(check_free_space(warn, min));
    }
}

/// The input is rules of retention. Rules that are accepted are accepted again as they are shown, and mean the same.
pub fn retention(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let Ok(rules) = text.parse::<RetentionRules>() else { return };
    assert!(rules.0.len() <= RETENTION_RULES_MAX);
    let shown = rules.to_string();
    assert_eq!(shown.parse(), Ok(rules), "{shown}");
}

/// The input is a configuration file.
#[expect(clippy::disallowed_methods, reason = "a file of the fuzzer, in the system's own folder for such")]
pub fn file(input: &[u8]) {
    let path = std::env::temp_dir().join(format!("alluvium-fuzz-{}.toml", std::process::id()));
    std::fs::write(&path, input).expect("a file can be written");
    if let Ok(loaded) = load(&path) {
        let shown = loaded.show();
        std::fs::write(&path, &shown).expect("a file can be written");
        let again = load(&path).expect("what is shown is a configuration");
        assert_eq!(format!("{:?}", again.config), format!("{:?}", loaded.config));
    }
    std::fs::remove_file(&path).expect("a file can be removed");
}

fn load(path: &Path) -> Result<Loaded, String> {
    let sources = Sources { file: Some(path.to_owned()), ..Sources::default() };
    Loaded::from_sources(&sources).map_err(|error| error.to_string())
}
