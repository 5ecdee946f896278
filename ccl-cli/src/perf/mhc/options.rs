//! The command line of `ccl perf mhc`.

use super::super::options::{Choice, choice, configure, iterations, number};
use super::message::{DESIGNS, design};
use super::model::Model;
use ccl_core::DataType;
use ccl_core::config::Config;
use ccl_core::mhc::{Design, Params, Variant};
use ccl_core::protocol::MAX_RANKS;
use std::path::PathBuf;

pub(crate) const AFTER_HELP: &str = "\
A token is that of a model of 43 layers: 87 all-reduces, 85 boundaries, each with an fn of its own, and a last post. \
Designs are timed in turn with the all-reduces alone, the boundaries alone and a copy of all fn, so that ratios are of one \
run. Results are compared with the reference by bits.

Exit status: 0 all right; 1 wrong data, or a rank failed in mid-run; 2 a command line that can't be carried out; \
3 it could not start; 4 timed out.";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Tokens at once, several numbers with commas between
    #[arg(long, value_name = "ROWS", default_value = "1,8,64", value_parser = rows, allow_hyphen_values = true)]
    rows: Choice<u64>,
    /// Elements of a stream
    #[arg(long, value_name = "HIDDEN", default_value = "4096", value_parser = number, allow_hyphen_values = true)]
    hidden: u32,
    /// Streams of the residual: 2, 4 or 8
    #[arg(long, value_name = "STREAMS", default_value = "4", value_parser = number, allow_hyphen_values = true)]
    streams: u32,
    /// Which coefficients a boundary's y uses: v4 (its own), v41 (those of the boundary before)
    #[arg(long, value_name = "VARIANT", default_value = "v4", value_parser = variant)]
    variant: Variant,
    /// Several with commas between, or all that there are for this: unfused, a, b, c (docs/numerics.md)
    #[arg(long, value_name = "DESIGN", default_value = "all", value_parser = designs)]
    design: Designs,
    /// Element type of x, residual and y: bfloat16 (bf16) float16 (f16) float32 (f32)
    #[arg(short = 'd', long, alias = "datatype", value_name = "DTYPE", default_value = "bfloat16", value_parser = dtype)]
    dtype: DataType,
    /// Rank processes to start
    #[arg(long, value_name = "N", default_value = "2", value_parser = number, allow_hyphen_values = true)]
    ranks: u32,
    /// Driver: auto (Intel's if there is one, else the software driver), soft, intel [default: CCLX_DEVICE, or auto]
    #[arg(long)]
    device: Option<String>,
    /// Timed turns [default: 5 to 50, as many as fit in 5 seconds]
    #[arg(short = 'n', long = "iters", value_name = "TURNS", value_parser = iterations, allow_hyphen_values = true)]
    turns: Option<u32>,
    /// 0 leaves out the check of the results
    #[arg(short = 'c', long = "check", value_name = "CHECK", default_value = "1", value_parser = number, allow_hyphen_values = true)]
    check: u32,
    /// Record the token in graphs too and time so many replays
    #[arg(long, value_name = "REPLAYS", value_parser = iterations, allow_hyphen_values = true)]
    graph: Option<u32>,
    /// Write the results to FILE as JSON, whole or not at all
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// For tests of the check: change one element of a result before it is compared, of each design or of these.
    #[arg(long, hide = true, value_name = "DESIGN", num_args = 0..=1, default_missing_value = "all", value_parser = designs)]
    corrupt: Option<Designs>,
}

/// Designs that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Designs {
    pub(super) designs: Vec<Design>,
    /// Whether such as there aren't for the variant are left out.
    pub(super) all: bool,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Options {
    /// Of each number of rows.
    pub(super) models: Vec<Model>,
    pub(super) designs: Designs,
    pub(super) ranks: usize,
    pub(super) turns: Option<u32>,
    pub(super) check: bool,
    pub(super) replays: Option<u32>,
    pub(super) json: Option<PathBuf>,
    pub(super) corrupt: Vec<Design>,
    pub(super) config: Config,
    pub(super) variables: Vec<(&'static str, String)>,
}

fn rows(text: &str) -> Result<Choice<u64>, String> {
    choice(text, [], |word| match number(word)? {
        0 => Err("0 rows; at least 1 is needed".into()),
        rows => Ok(u64::from(rows)),
    })
    .and_then(|choice| if choice.0.is_empty() { Err(format!("'{text}' is no number of rows")) } else { Ok(choice) })
}

fn variant(text: &str) -> Result<Variant, String> {
    let variant = [Variant::V4, Variant::V41].into_iter().find(|variant| variant.to_string() == text);
    variant.ok_or_else(|| format!("unknown variant '{text}'; known: v4 v41"))
}

fn dtype(text: &str) -> Result<DataType, String> {
    let dtype: DataType = match text {
        "f16" => DataType::Float16,
        "f32" => DataType::Float32,
        other => other.parse()?,
    };
    if matches!(dtype, DataType::Bfloat16 | DataType::Float16 | DataType::Float32) {
        return Ok(dtype);
    }
    Err(format!("mHC of {dtype}; there are: bfloat16 float16 float32"))
}

fn designs(text: &str) -> Result<Designs, String> {
    if text != "all" && text.split(',').any(|word| word == "all") {
        return Err(format!("'{text}': 'all' is every design there is, and stands alone"));
    }
    let Choice(designs) = choice(text, DESIGNS, design)?;
    Ok(Designs { designs, all: text == "all" })
}

impl Args {
    /// Refuses by name what can't be done. `environment` is that of this process.
    pub(crate) fn resolve(self, environment: impl IntoIterator<Item = (String, String)>) -> Result<Options, String> {
        if self.ranks == 0 || self.ranks as usize > MAX_RANKS {
            return Err(format!("--ranks {}: there are 1 to {MAX_RANKS}", self.ranks));
        }
        let Args { variant, dtype, streams, .. } = self;
        let mut models = Vec::new();
        for &rows in &self.rows.0 {
            let params = Params::new(variant, dtype, rows, self.hidden.into(), streams);
            params.check().map_err(|error| error.to_string())?;
            models.push(Model { params });
        }
        if variant == Variant::V4 && !self.design.all && self.design.designs.contains(&Design::B) {
            return Err("--design b: y of v4 needs the sums that b computes after it; --variant v41 has it".into());
        }
        let mut variables = Vec::new();
        variables.extend(self.device.map(|device| ("CCLX_DEVICE", device)));
        let config = configure(&mut variables, environment, self.ranks)?;
        Ok(Options {
            models,
            designs: self.design,
            ranks: self.ranks as usize,
            turns: self.turns,
            check: self.check != 0,
            replays: self.graph,
            json: self.json,
            corrupt: self.corrupt.map(|corrupt| corrupt.designs).unwrap_or_default(),
            config,
            variables,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn resolve(line: &str) -> Result<Options, String> {
        let line =
            Line::try_parse_from(["mhc"].into_iter().chain(line.split_whitespace())).map_err(|e| e.to_string())?;
        line.args.resolve([])
    }

    #[test]
    fn what_is_asked_for() {
        let options = resolve("").unwrap();
        assert_eq!(options.models.iter().map(|model| model.params.rows).collect::<Vec<_>>(), [1, 8, 64]);
        assert_eq!((options.models[0].params.hidden, options.models[0].params.streams), (4096, 4));
        assert_eq!((options.designs.designs, options.designs.all), (DESIGNS.to_vec(), true));
        let options =
            resolve("--rows 3,3,2 --hidden 96 --streams 8 --variant v41 --design b,c -d f16 --ranks 4").unwrap();
        assert_eq!(options.models.iter().map(|model| model.params.rows).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(options.models[0].params.dtype, DataType::Float16);
        assert_eq!((options.designs.designs, options.designs.all), (vec![Design::B, Design::C], false));
        assert_eq!(options.variables, [("ZE_SOFT_DEVICES", "4".to_owned())]);
        for (line, corrupt) in
            [("", &[][..]), ("--corrupt -n 1", &DESIGNS), ("--corrupt unfused,c", &[Design::Unfused, Design::C])]
        {
            assert_eq!(resolve(line).unwrap().corrupt, corrupt, "{line}");
        }
    }

    #[test]
    fn what_can_not_be_is_refused_by_name() {
        for (line, word) in [
            ("--rows 0", "0 rows"),
            ("--rows all", "number of rows"),
            ("--rows 1,x", "'x'"),
            ("--rows -1", "'-1'"),
            ("--hidden 0", "rows of 0 elements"),
            ("--streams 3", "3 streams"),
            ("--variant v5", "unknown variant 'v5'"),
            ("--design d", "unknown design 'd'"),
            ("--design c,all", "stands alone"),
            ("--design b", "--variant v41"),
            ("--dtype int8", "mHC of int8"),
            ("--ranks 0", "--ranks 0"),
            ("--ranks 17", "--ranks 17"),
            ("--graph 0", "at least 1"),
            ("-n 0", "at least 1"),
            ("--device cuda", "CCLX_DEVICE='cuda'"),
        ] {
            let error = resolve(line).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
