//! `ccl run`: starts a command with this library in oneCCL's place, and tells afterwards which library each of its processes
//! really had.

mod child;
mod place;
mod processes;
mod report;
mod route;

use crate::{installed, output};
use ccl_core::presence;
use child::Ended;
use place::Place;
use report::Report;
pub(crate) use route::found_here;
use route::{Choice, Route};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The hidden command that tells which library a process would get.
pub(crate) const PROBE_COMMAND: &str = "__run-probe";

/// Exit status where the command could not be started for a reason of ours.
const NOT_STARTED: u8 = 3;

pub(crate) const AFTER_HELP: &str = "\
Routes: audit (LD_AUDIT) has every lookup of libccl.so.2 or libccl.so find this library, by whatever name or path; preload \
(LD_PRELOAD, and a folder of links that comes first) and folder (the links alone) leave absolute paths and programs with a \
DT_RPATH alone; plugin (CCL_PLUGIN) goes underneath oneCCL's own library. auto takes audit where the system's dynamic linker \
has it, else preload. The report goes to standard error. See docs/preload.md.

Exit status: the command's own, 128 and the signal's number if a signal ended it, 127 if there is no such command, 126 if it \
can't be executed; 2 a command line that can't be carried out; 3 this library or its route \
can't be had, or the command's own was 0 and --json's file could not be written.";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How this library gets into the command's processes
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    route: Choice,
    /// Print what would be set and started, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Let oneCCL's own library make the calls, and compare each reduction with what it must be
    #[arg(long)]
    witness: bool,
    /// Write the report to this file, for programs
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(crate) fn main(args: &Args) -> ExitCode {
    match run(args) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("ccl run: {error}\n"));
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, String> {
    let place = if args.witness { Place::find_witness()? } else { Place::find()? };
    let scratch = tempfile::Builder::new().prefix("ccl-run-").tempdir();
    let scratch = scratch.map_err(|error| format!("a folder for the report: {error}"))?;
    let mut route = Route::choose(args.route, &place, scratch.path())?;
    if args.witness {
        route.witness()?;
    }
    let reports = scratch.path().join("report");
    std::fs::create_dir(&reports).map_err(|error| format!("{}: {error}", reports.display()))?;
    if args.dry_run {
        let mut page = String::new();
        for torch in installed::torches(&installed::python_path()) {
            page += &format!("# torch {} in {}: {}\n", torch.version, torch.folder.display(), torch.api);
        }
        if matches!(route.choice, Choice::Preload | Choice::Folder) {
            let (folder, library) = (scratch.path().join("lib"), place.library.display());
            page += &format!(
                "# {} stands for a folder of yours in which libccl.so and libccl.so.2 lead to {library}\n",
                folder.display()
            );
        }
        page += &route.as_text(&args.command);
        output::print(&page)?;
        return Ok(ExitCode::SUCCESS);
    }
    route.set(presence::FOLDER, &reports);
    // Before anything is started: the command's status is not to be lost for it.
    let json =
        args.json.as_ref().map(|path| File::create(path).map_err(|error| format!("{}: {error}", path.display())));
    let mut json = json.transpose()?;
    say(&format!("ccl run: {}\n", route.in_words(&place)));
    let (ended, seen) = child::run(&args.command, route.variables())?;
    let left = seen.living();
    let report = Report::new(&route, &place, &reports, seen, &ended);
    say(&report.words());
    let unwritten = json.as_mut().and_then(|file| report.write(file).err());
    if let Some(error) = &unwritten {
        say(&format!("ccl run: the report: {error}\n"));
    }
    if let Some(outer) = std::env::var_os(presence::FOLDER) {
        presence::pass_on(&reports, Path::new(&outer));
    }
    if left > 0 {
        // What still runs may yet look into it.
        say(&format!("ccl run: {} stays, for what still runs\n", scratch.keep().display()));
    }
    let code = exit_code(&args.command[0], &ended);
    // The command's own failure says more.
    Ok(if unwritten.is_some() && ended.status() == 0 { ExitCode::from(NOT_STARTED) } else { code })
}

/// To standard error, whether somebody reads it or not.
fn say(text: &str) {
    _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn exit_code(command: &OsString, ended: &Ended) -> ExitCode {
    if let Ended::NotStarted { error, .. } = ended {
        say(&format!("ccl run: {}: {error}\n", Path::new(command).display()));
    }
    ExitCode::from(ended.status())
}

/// Prints the file that `libccl.so.2` is found in by a process that is started like this one.
pub(crate) fn probe() -> ExitCode {
    match route::found_here() {
        Ok(path) => {
            // Whoever asked has no file's name otherwise.
            output::line(&path.display().to_string()).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
