//! The environment: what is in force, what is refused, what has no effect.

use ccl_core::config::{Config, VARIABLES};
use serde::Serialize;
use std::ffi::OsString;

#[derive(Debug, Serialize)]
pub(super) struct Configuration {
    /// Whether a communicator accepts this environment.
    pub(super) valid: bool,
    /// Variables that are set and concern this library or what it stands on.
    pub(super) set: Vec<Setting>,
}

#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) state: State,
    /// Why it is refused, or why it has no effect, or who reads it.
    pub(super) note: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// In force.
    Used,
    /// No communicator is formed while it is set so.
    Refused,
    /// Has no effect.
    Ignored,
    /// Read by the loader, a driver, the software driver or oneCCL's own library.
    Elsewhere,
}

/// A variable of the table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// What the environment holds; null if it is unset.
    pub(super) set: Option<String>,
    /// What is in force; null if nothing is.
    pub(super) value: Option<String>,
    pub(super) default: Option<String>,
    pub(super) accepts: String,
    /// Whether ranks must agree on it.
    pub(super) alike: bool,
    pub(super) help: &'static str,
    /// Why the value is refused.
    pub(super) error: Option<String>,
}

/// Reads `environment`, which is this process's outside tests.
pub(super) fn look(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Configuration {
    let mut set: Vec<Setting> =
        environment.into_iter().filter_map(|(name, value)| setting(name.into_string().ok()?, value)).collect();
    set.sort_by(|a, b| a.name.cmp(&b.name));
    Configuration { valid: set.iter().all(|setting| setting.state != State::Refused), set }
}

fn setting(name: String, value: OsString) -> Option<Setting> {
    let known = VARIABLES.iter().any(|variable| variable.name == name);
    let text = value.to_string_lossy().into_owned();
    let (state, note) = if known || name.starts_with("CCLX_") {
        match refusal(&name, &value) {
            Some(error) => (State::Refused, Some(error)),
            None => (State::Used, None),
        }
    } else if name == "CCL_PLUGIN" {
        (State::Elsewhere, Some("read by oneCCL's own library, where that makes the calls".into()))
    } else if name.starts_with("CCL_") {
        (State::Ignored, Some("oneCCL's; has no meaning here".into()))
    } else if name.starts_with("FI_") {
        (State::Ignored, Some("libfabric's, which is not used: ranks of one host need no network".into()))
    } else if ["ZE_", "ZEL_", "ZES_", "ZET_", "NEO"].iter().any(|prefix| name.starts_with(prefix)) {
        let reader =
            if name.starts_with("ZE_SOFT_") { "the software driver" } else { "the Level Zero loader and drivers" };
        (State::Elsewhere, Some(format!("read by {reader}")))
    } else {
        return None;
    };
    Some(Setting { name, value: text, state, note })
}

/// Why this value of this variable is refused, if it is.
fn refusal(name: &str, value: &OsString) -> Option<String> {
    match value.to_str() {
        None => Some("invalid argument: the value is not UTF-8".into()),
        Some(text) => Config::from_vars([(name.to_owned(), text.to_owned())]).err().map(|error| error.to_string()),
    }
}

impl Configuration {
    /// The configuration that the accepted variables make.
    pub(super) fn accepted(&self) -> Config {
        let used = self.set.iter().filter(|setting| setting.state == State::Used);
        // Each was accepted on its own, and they don't depend on each other.
        Config::from_vars(used.map(|setting| (setting.name.clone(), setting.value.clone()))).unwrap_or_default()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Setting> {
        self.set.iter().find(|setting| setting.name == name)
    }

    /// All variables of the table, as they are.
    pub(super) fn table(&self) -> Vec<Row> {
        let (config, defaults) = (self.accepted(), Config::default());
        let row = |variable: &ccl_core::config::Variable| {
            let setting = self.get(variable.name);
            let refused = setting.filter(|setting| setting.state == State::Refused);
            Row {
                name: variable.name,
                set: setting.map(|setting| setting.value.clone()),
                value: if refused.is_some() { None } else { variable.value(&config) },
                default: variable.value(&defaults),
                accepts: variable.accepts(),
                alike: variable.alike,
                help: variable.help,
                error: refused.and_then(|setting| setting.note.clone()),
            }
        };
        VARIABLES.iter().map(row).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn each_variable_has_its_state() {
        let variables = [
            ("CCLX_ORDER", "rank", Some(State::Used)),
            ("CCLX_DEVICE", "gpu", Some(State::Refused)),
            ("CCLX_TIMEOUT", "1", Some(State::Refused)),
            ("CCL_ALLREDUCE", "topo", Some(State::Refused)),
            ("CCL_ATL_TRANSPORT", "ofi", Some(State::Ignored)),
            ("FI_PROVIDER", "tcp", Some(State::Ignored)),
            ("ZE_AFFINITY_MASK", "0", Some(State::Elsewhere)),
            ("HOME", "/root", None),
        ];
        let found = look(variables.map(|(name, value, _)| (name.into(), value.into())));
        assert!(!found.valid);
        for (name, _, state) in variables {
            assert_eq!(found.get(name).map(|setting| setting.state), state, "{name}");
        }
        assert!(found.get("CCLX_DEVICE").unwrap().note.as_ref().unwrap().contains("auto|soft|intel|loader"));
        let table = found.table();
        assert_eq!(table.len(), VARIABLES.len());
        let row = |name| table.iter().find(|row| row.name == name).unwrap();
        assert_eq!(row("CCLX_ORDER").value.as_deref(), Some("rank"));
        assert!(row("CCLX_DEVICE").value.is_none() && row("CCLX_DEVICE").error.is_some());
        assert!(row("CCLX_EVENTS").set.is_none() && row("CCLX_EVENTS").value.as_deref() == Some("auto"));
    }

    #[test]
    fn what_is_no_text_is_refused_where_it_counts() {
        let bytes = OsString::from_vec(vec![b'/', 0xff]);
        let found =
            look([("CCL_LOG_FILE".into(), bytes.clone()), ("FI_LOG_LEVEL".into(), bytes.clone()), (bytes, "".into())]);
        assert!(!found.valid);
        assert_eq!(found.set.len(), 2);
        assert!(look([]).valid);
    }
}
