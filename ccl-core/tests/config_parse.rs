//! Environment variables reach their fields, and nothing that is mistyped passes.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::config::{Config, VARIABLES};
use ccl_core::{Error, Result};

fn one(name: &str, value: &str) -> Result<Config> {
    Config::from_vars([(name.to_owned(), value.to_owned())])
}

#[test]
fn every_variable_reaches_its_own_field_and_comes_back() {
    let samples = [
        ("CCLX_DEVICE", "soft"),
        ("CCLX_ORDER", "rank"),
        ("CCLX_TIMEOUT_MS", "250"),
        ("CCLX_ON_ERROR", "log"),
        ("CCLX_ALLOW_SHARED_DEVICE", "1"),
        ("CCLX_STAGING_TILES", "7"),
        ("CCLX_PUSH_TILES", "5"),
        ("CCLX_BULK_BYTES", "8192"),
        ("CCLX_MAX_WIRES", "3"),
        ("CCLX_GRANULE", "16"),
        ("CCLX_EVENTS", "regular"),
        ("CCLX_CAPTURE", "a/folder"),
        ("CCLX_CAPTURE_LIMIT", "3"),
        ("CCLX_LIBRARY", "a/library"),
        ("CCLX_REPORT", "a/folder"),
        ("CCLX_WITNESS", "a/library"),
        ("CCLX_WITNESS_SHARE", "20"),
        ("CCLX_WITNESS_OVERHEAD", "4"),
        ("CCLX_WITNESS_REPORT", "a/file"),
        ("CCLX_WITNESS_CORPUS", "a/folder"),
        ("CCL_ALLREDUCE", "mesh"),
        ("CCLX_TRANSPORT", "lines"),
        ("CCL_TOPO_P2P_ACCESS", "0"),
        ("CCL_KVS_CONNECTION_TIMEOUT", "5"),
        ("CCL_LOG_LEVEL", "debug"),
        ("CCL_LOG_FILE", "a/file"),
        ("LOCAL_RANK", "2"),
        ("LOCAL_WORLD_SIZE", "4"),
    ];
    let only = ["CCLX_CHECK", "CCL_ZE_IPC_EXCHANGE"];
    assert_eq!(samples.len() + only.len(), VARIABLES.len());
    let defaults = Config::default();
    for (name, text) in samples {
        let config = one(name, text).unwrap();
        for variable in VARIABLES {
            let expected = if variable.name == name { Some(text.to_owned()) } else { variable.value(&defaults) };
            assert_eq!(variable.value(&config), expected, "{name} seen through {}", variable.name);
        }
        let alike = VARIABLES.iter().find(|v| v.name == name).unwrap().alike;
        assert_eq!(config.hash() != defaults.hash(), alike, "{name}");
    }
    for variable in VARIABLES.iter().filter(|v| v.value(&defaults).is_some()) {
        let text = variable.value(&defaults).unwrap();
        assert_eq!(one(variable.name, &text).unwrap(), defaults, "the default of {} as a value", variable.name);
    }
}

#[test]
fn a_bad_value_is_an_error_that_names_variable_value_and_what_is_accepted() {
    for (name, value, accepted) in [
        ("CCLX_DEVICE", "Soft", "auto|soft|intel"),
        ("CCLX_DEVICE", "", "auto|soft|intel"),
        ("CCLX_TIMEOUT_MS", "-1", "from 1 to"),
        ("CCLX_TIMEOUT_MS", "+5", "from 1 to"),
        ("CCLX_TIMEOUT_MS", "0", "from 1 to"),
        ("CCLX_TIMEOUT_MS", "99999999999", "from 1 to"),
        ("CCLX_STAGING_TILES", "0", "from 1 to 65536"),
        ("CCLX_MAX_WIRES", "65", "from 1 to 64"),
        ("CCLX_MAX_WIRES", "", "from 1 to 64"),
        ("CCLX_GRANULE", "32", "0|8|16|64"),
        ("CCLX_GRANULE", "08", "0|8|16|64"),
        ("CCL_TOPO_P2P_ACCESS", "yes", "0|1"),
        ("CCL_ALLREDUCE", "rign", "ring"),
        ("CCL_LOG_FILE", "", "a text"),
        ("LOCAL_RANK", " 1", "from 0 to"),
    ] {
        let Err(Error::InvalidArgument(text)) = one(name, value) else { panic!("{name}='{value}' was accepted") };
        assert!(text.contains(&format!("{name}='{value}'")) && text.contains(accepted), "{text}");
    }
}

#[test]
fn what_is_known_but_not_there_is_refused_by_name() {
    for (name, value) in [
        ("CCLX_CHECK", "result"),
        ("CCL_ALLREDUCE", "topo"),
        ("CCL_ZE_IPC_EXCHANGE", "pidfd"),
        ("CCL_ZE_IPC_EXCHANGE", "drmfd"),
    ] {
        let Err(Error::NotImplemented(text)) = one(name, value) else { panic!("{name}={value} was accepted") };
        assert!(text.contains(&format!("{name}={value}")), "{text}");
    }
}

#[test]
fn unknown_names_are_an_error_listed_or_none_of_ours() {
    let Err(Error::InvalidArgument(text)) = one("CCLX_ODRER", "ring") else { panic!("a typo was silent") };
    assert!(text.contains("CCLX_ODRER") && text.contains("CCLX_ORDER"), "{text}");
    let vars = [("CCL_WORKER_COUNT", "4"), ("CCLOUD", "1"), ("CCL_ATL_TRANSPORT", "mpi"), ("HOME", "")];
    let config = Config::from_vars(vars.map(|(n, v)| (n.to_owned(), v.to_owned()))).unwrap();
    assert_eq!(config.ignored(), ["CCL_ATL_TRANSPORT", "CCL_WORKER_COUNT"]);
    assert_eq!(config.hash(), Config::default().hash());
}

#[test]
fn a_lookup_is_asked_for_the_table() {
    let config = Config::from_lookup(|name| (name == "CCLX_GRANULE").then(|| "64".into())).unwrap();
    assert_eq!(config, Config { granule: 64, ..Config::default() });
}

#[test]
fn slots_that_are_set_are_obeyed_on_every_device() {
    use ccl_core::device::DeviceFamily;
    use ccl_core::topology::Slots;
    let usual = [("CCLX_PUSH_TILES", Slots::USUAL.push_tiles), ("CCLX_BULK_BYTES", Slots::USUAL.bulk_bytes)];
    let set = Config::from_vars(usual.map(|(name, value)| (name.to_owned(), value.to_string()))).unwrap();
    let unset = Config::default();
    for family in [DeviceFamily::Software, DeviceFamily::IntelPcie, DeviceFamily::Cuda] {
        assert_eq!(Slots::of(family, &set), Slots::USUAL, "{family:?}");
        assert_eq!(Slots::of(family, &unset) == Slots::USUAL, family != DeviceFamily::Cuda, "{family:?}");
    }
    let [(name, tiles), _] = usual;
    let one_set = Slots::of(DeviceFamily::Cuda, &one(name, &tiles.to_string()).unwrap());
    assert_eq!(one_set, Slots { push_tiles: tiles, ..Slots::of(DeviceFamily::Cuda, &unset) });
    // A rank that has it and one that goes by its device could have slots of two sizes.
    assert_ne!(set.hash(), unset.hash());
}

#[test]
fn default_staging_of_8_ranks_is_moderate() {
    use ccl_core::protocol::{Layout, LineForm};
    use ccl_core::topology::Slots;
    let Slots { push_tiles, bulk_bytes } = Slots::USUAL;
    let slot_tiles = Config::default().staging_tiles;
    // Where bulk slots are agreed on, so are the widest lines: both are shown for a processor's memory.
    for (form, bulk_bytes) in [(LineForm::L8, 0), (LineForm::L16, 0), (LineForm::L64, bulk_bytes)] {
        let bytes = Layout { n: 8, form, slot_tiles, push_tiles, bulk_bytes }.bytes();
        assert!(bytes <= 32 << 20, "{form:?}: {bytes}");
    }
}
