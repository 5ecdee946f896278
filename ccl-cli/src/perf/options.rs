//! The command line of `ccl perf`, and what of it this build can do.

use super::sizes::{self, Step};
use ccl_core::config::Config;
use ccl_core::plan::{self, Agreed, Request};
use ccl_core::protocol::LineForm;
use ccl_core::{DataType, Order, ReduceOp};
use clap::ValueEnum;
use std::path::PathBuf;

/// Collectives by name; the first is the one that is there.
const COLLECTIVES: [&str; 8] =
    ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all", "sendrecv", "mhc"];

pub(crate) const AFTER_HELP: &str = "\
Sizes are in bytes, with K, M and G for binary multiples. Without -e the series ends at 64M, or at -b if that is more.

Exit status: 0 all right; 1 wrong data, or a rank failed in mid-run; 2 a command line that can't be carried out; \
3 it could not start; 4 timed out.

Environment: docs/environment.md. Unless ZE_SOFT_DEVICES is set, the software driver shows as many devices as there \
are ranks.";

/// How the work is spread over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Algo {
    Auto,
    Ring,
    Mesh,
    Oneshot,
    Direct,
}

impl Algo {
    /// As CCL_ALLREDUCE has it.
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// all_reduce (more to come)
    collective: String,
    /// Least size
    #[arg(short = 'b', long = "minbytes", value_name = "MIN", default_value = "8", value_parser = sizes::parse, allow_hyphen_values = true)]
    min: u64,
    /// Largest size
    #[arg(short = 'e', long = "maxbytes", value_name = "MAX", value_parser = sizes::parse, allow_hyphen_values = true)]
    max: Option<u64>,
    /// Each size is this many times the one before [default: 4]
    #[arg(short = 'f', long = "stepfactor", value_name = "FACTOR", value_parser = factor, allow_hyphen_values = true)]
    factor: Option<u64>,
    /// Each size is this many bytes above the one before
    #[arg(short = 'i', long = "stepbytes", value_name = "STEP", value_parser = sizes::parse, allow_hyphen_values = true, conflicts_with = "factor")]
    step: Option<u64>,
    /// Timed calls of each size [default: 5 to 200, as many as fit in half a second]
    #[arg(short = 'n', long = "iters", value_name = "ITERS", value_parser = iterations, allow_hyphen_values = true)]
    iterations: Option<u32>,
    /// Calls before the timed ones [default: 5; 1 where a call takes over 0.1 s]
    #[arg(short = 'w', long = "warmup_iters", value_name = "WARMUP", value_parser = warmup, allow_hyphen_values = true)]
    warmup: Option<u32>,
    /// 0 leaves out the check of the results
    #[arg(short = 'c', long = "check", value_name = "CHECK", default_value = "1", value_parser = number, allow_hyphen_values = true)]
    check: u32,
    /// Element type: bfloat16, float16 (half), float32 (float), ...
    #[arg(short = 'd', long = "datatype", value_name = "DTYPE", default_value = "float32")]
    dtype: DataType,
    /// Reduction: sum, ...
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "sum")]
    op: ReduceOp,
    /// Root, of collectives that have one
    #[arg(short = 'r', long = "root", value_name = "ROOT", default_value = "0", value_parser = number, allow_hyphen_values = true)]
    root: u32,
    /// Rank processes to start
    #[arg(long, value_name = "N", default_value = "2", value_parser = number, allow_hyphen_values = true)]
    ranks: u32,
    /// Driver: auto (Intel's if there is one, else the software driver), soft, intel [default: CCLX_DEVICE, or auto]
    #[arg(long)]
    device: Option<String>,
    /// Algorithm [default: CCL_ALLREDUCE, or auto]
    #[arg(long)]
    algo: Option<Algo>,
    /// Order of summation: ring, rank [default: CCLX_ORDER, or ring]
    #[arg(long)]
    order: Option<Order>,
    /// Record the call in a graph and replay it so many times
    #[arg(long, value_name = "REPLAYS", value_parser = number, allow_hyphen_values = true)]
    graph: Option<u32>,
    /// Write the results to FILE as JSON, whole or not at all
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// For tests of the check: change one received element before it is compared.
    #[arg(long, hide = true)]
    corrupt: bool,
}

/// A run that this build can do.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) collective: &'static str,
    pub(super) ranks: usize,
    pub(super) dtype: DataType,
    pub(super) op: ReduceOp,
    /// Elements of each message size, ascending.
    pub(super) counts: Vec<u64>,
    pub(super) step: Step,
    pub(super) iterations: Option<u32>,
    pub(super) warmup: Option<u32>,
    pub(super) check: bool,
    pub(super) json: Option<PathBuf>,
    pub(super) corrupt: bool,
    /// What the ranks' environment decides.
    pub(super) config: Config,
    /// Variables that are set for the ranks.
    pub(super) variables: Vec<(&'static str, String)>,
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("'{text}' is not a whole number from 0 up"))
}

fn factor(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 | 1 => Err("sizes don't grow by a factor below 2".into()),
        factor => Ok(factor.into()),
    }
}

/// Times of so many calls are kept.
const MOST_CALLS: u32 = 10_000_000;

fn warmup(text: &str) -> Result<u32, String> {
    match number(text)? {
        calls if calls <= MOST_CALLS => Ok(calls),
        _ => Err(format!("more than {MOST_CALLS} calls")),
    }
}

fn iterations(text: &str) -> Result<u32, String> {
    match warmup(text)? {
        0 => Err("at least 1 call must be timed".into()),
        calls => Ok(calls),
    }
}

impl Args {
    /// Refuses by name what can't be done. `environment` is that of this process.
    pub(super) fn resolve(self, environment: impl IntoIterator<Item = (String, String)>) -> Result<Options, String> {
        let there = COLLECTIVES[0];
        match COLLECTIVES.into_iter().find(|name| *name == self.collective) {
            Some(name) if name == there => {}
            Some(name) => return Err(format!("{name} is not there yet; there is: {there}")),
            None => {
                return Err(format!("unknown collective '{}'; known: {}", self.collective, COLLECTIVES.join(" ")));
            }
        }
        if self.graph.is_some() {
            return Err("--graph is not there yet: calls can't be recorded".into());
        }
        if self.ranks == 0 {
            return Err("--ranks 0: at least 1 rank is needed".into());
        }
        if self.root >= self.ranks {
            return Err(format!("-r {}: there are {} ranks, counted from 0", self.root, self.ranks));
        }
        let mut variables = Vec::new();
        variables.extend(self.device.map(|device| ("CCLX_DEVICE", device)));
        variables.extend(self.order.map(|order| ("CCLX_ORDER", order.to_string())));
        variables.extend(self.algo.map(|algo| ("CCL_ALLREDUCE", algo.word())));

        let mut soft_devices = false;
        let inherited = environment.into_iter().filter(|(name, _)| {
            soft_devices |= name == "ZE_SOFT_DEVICES";
            !variables.iter().any(|(set, _)| set == name)
        });
        let inherited: Vec<_> = inherited.collect();
        let set = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let config = Config::from_vars(inherited.into_iter().chain(set)).map_err(|error| error.to_string())?;
        if !soft_devices {
            variables.push(("ZE_SOFT_DEVICES", self.ranks.to_string()));
        }

        let step = match (self.step, self.factor) {
            (Some(bytes), _) => Step::Bytes(bytes),
            (None, factor) => Step::Factor(factor.unwrap_or(4)),
        };
        let max = self.max.unwrap_or(self.min.max(64 << 20));
        let counts = sizes::counts(self.min, max, step, self.dtype.size() as u64)?;
        let ranks = self.ranks as usize;
        for count in [counts.first(), counts.last()].into_iter().flatten() {
            supported(ranks, *count, self.dtype, self.op, &config)?;
        }
        Ok(Options {
            collective: there,
            ranks,
            dtype: self.dtype,
            op: self.op,
            counts,
            step,
            iterations: self.iterations,
            warmup: self.warmup,
            check: self.check != 0,
            json: self.json,
            corrupt: self.corrupt,
            config,
            variables,
        })
    }
}

/// Asks the library for a plan, so that what it can't do is refused before a process is started.
fn supported(ranks: usize, count: u64, dtype: DataType, op: ReduceOp, config: &Config) -> Result<(), String> {
    // What the ranks will agree on is not known yet; what is refused doesn't hang on it.
    let agreed = Agreed {
        max_wires: config.max_wires,
        push_tiles: config.push_tiles,
        bulk_bytes: config.bulk_bytes,
        ..Agreed::ring(ranks, LineForm::L64, config.staging_tiles)
    };
    let request = Request { count, dtype, op, order: config.order, period: None, registered: None };
    plan::plan(&request, &agreed, config).map(drop).map_err(|error| error.to_string())
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

    fn resolve(line: &str, environment: &[(&str, &str)]) -> Result<Options, String> {
        let line = Line::try_parse_from(["perf"].into_iter().chain(line.split_whitespace()))
            .map_err(|error| error.to_string())?;
        line.args.resolve(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn defaults() {
        let options = resolve("all_reduce", &[]).unwrap();
        assert_eq!((options.ranks, options.dtype, options.op), (2, DataType::Float32, ReduceOp::Sum));
        assert_eq!((options.counts[0], *options.counts.last().unwrap()), (2, 8 << 20));
        assert!(options.check && options.iterations.is_none() && options.warmup.is_none());
        assert_eq!(options.variables, [("ZE_SOFT_DEVICES", "2".to_owned())]);
    }

    #[test]
    fn nccl_tests_flags() {
        let line = "all_reduce -b 1K -e 4K -f 2 -n 7 -w 0 -c 0 -d half -o sum -r 3 --ranks 4 --device soft";
        let options = resolve(line, &[("ZE_SOFT_DEVICES", "9"), ("CCLX_DEVICE", "intel")]).unwrap();
        assert_eq!(options.counts, [512, 1024, 2048]);
        assert_eq!((options.iterations, options.warmup, options.check), (Some(7), Some(0), false));
        assert_eq!(options.variables, [("CCLX_DEVICE", "soft".to_owned())]);
        assert_eq!(resolve("all_reduce -b 8 -e 16 -i 4", &[]).unwrap().counts, [2, 3, 4]);
        assert_eq!(resolve("all_reduce -b 1G", &[]).unwrap().counts, [1 << 28]);
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (line, word) in [
            ("reduce_scatter", "reduce_scatter is not there yet; there is: all_reduce"),
            ("mhc", "mhc is not there yet"),
            ("all_reduction", "unknown collective 'all_reduction'"),
            ("all_reduce --algo direct", "by algorithm direct on 2 ranks: buffers are not registered"),
            ("all_reduce --algo tree", "tree"),
            ("all_reduce --order rank --algo ring", "order=rank"),
            ("all_reduce --graph 10", "--graph is not there yet"),
            ("all_reduce -o max", "max"),
            ("all_reduce -d int8", "int8"),
            ("all_reduce -d float7", "float7"),
            ("all_reduce --ranks 17", "17 ranks"),
            ("all_reduce --device cuda", "CCLX_DEVICE='cuda'"),
        ] {
            let error = resolve(line, &[]).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (line, word) in [
            ("all_reduce -b 0", "'0' is not a size"),
            ("all_reduce -b -8", "'-8' is not a size"),
            ("all_reduce -b 8K -e 4K", "above the largest"),
            ("all_reduce -f 1", "factor below 2"),
            ("all_reduce -f -2", "'-2' is not a whole number"),
            ("all_reduce -i 0", "'0' is not a size"),
            ("all_reduce -f 2 -i 4", "cannot be used with"),
            ("all_reduce -n 0", "at least 1 call"),
            ("all_reduce -n -1", "'-1' is not a whole number"),
            ("all_reduce -w 99999999", "more than"),
            ("all_reduce --ranks 0", "at least 1 rank"),
            ("all_reduce --ranks -2", "'-2' is not a whole number"),
            ("all_reduce -r 2", "2 ranks, counted from 0"),
        ] {
            let error = resolve(line, &[]).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
        let error = resolve("all_reduce", &[("CCLX_DEVISE", "soft")]).expect_err("a mistyped variable");
        assert!(error.contains("CCLX_DEVISE"), "{error}");
    }
}
