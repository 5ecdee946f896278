//! The log: one line an event, in the form that oneCCL's users know.

use ccl_core::config::{Config, LogLevel};
use ccl_core::{Error, Result};
use std::fmt;
use std::fs::OpenOptions;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Sends this process's log where CCL_LOG_LEVEL and CCL_LOG_FILE say.
pub fn install(config: &Config) -> Result<()> {
    let writer = match &config.log_file {
        None => BoxMakeWriter::new(std::io::stderr),
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let what = || format!("CCL_LOG_FILE={}", path.display());
            BoxMakeWriter::new(Mutex::new(file.map_err(|error| Error::system(what(), error))?))
        }
    };
    let level = match config.log_level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .event_format(Line)
        .with_writer(writer)
        .try_init()
        .map_err(|error| Error::Internal(format!("the log: {error}")))
}

/// `YYYY:MM:DD-HH:MM:SS:(tid) |CCL_WARN| text`
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        prefix(&mut writer, &local_time(seconds), nix::unistd::gettid().as_raw(), *event.metadata().level())?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn prefix(to: &mut impl fmt::Write, time: &libc::tm, thread: i32, level: Level) -> fmt::Result {
    write!(
        to,
        "{:04}:{:02}:{:02}-{:02}:{:02}:{:02}:({thread}) |CCL_{level}| ",
        time.tm_year + 1900,
        time.tm_mon + 1,
        time.tm_mday,
        time.tm_hour,
        time.tm_min,
        time.tm_sec,
    )
}

fn local_time(seconds: u64) -> libc::tm {
    let seconds = seconds as libc::time_t;
    // SAFETY: all zeros is a value of this plain C structure, null pointer included.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals; the function keeps neither. Should it fail, the zeros remain.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut time) };
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_known_form() {
        // SAFETY: as in `local_time`.
        let mut time: libc::tm = unsafe { std::mem::zeroed() };
        (time.tm_year, time.tm_mon, time.tm_mday) = (126, 10, 3);
        (time.tm_hour, time.tm_min, time.tm_sec) = (4, 5, 6);
        let mut line = String::new();
        prefix(&mut line, &time, 77, Level::WARN).expect("a string takes all");
        assert_eq!(line, "2026:11:03-04:05:06:(77) |CCL_WARN| ");
    }
}
