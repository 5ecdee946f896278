//! The command line of `ccl perf`, and what of it this build can do.

use super::collective::{self, What};
use super::data::Op;
use super::sizes::{self, Step};
use ccl_core::config::Config;
use ccl_core::device::DeviceFamily;
use ccl_core::plan::{self, Agreed, Registered, RegisteredRange, Request};
use ccl_core::protocol::LineForm;
use ccl_core::topology::Slots;
use ccl_core::{DataType, Order};
use std::path::PathBuf;

pub(crate) const AFTER_HELP: &str = "\
Sizes are in bytes, with K, M and G for binary multiples. Without -e the series ends at 64M, or at -b if that is more.

Exit status: 0 all right; 1 wrong data, or a rank failed in mid-run; 2 a command line that can't be carried out; \
3 it could not start, or failed before the first row; 4 timed out.

Environment: docs/environment.md. Unless ZE_SOFT_DEVICES is set, the software driver shows as many devices as there \
are ranks.";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// all_reduce, reduce_scatter, all_gather, broadcast, reduce, scatter, gather, all_to_all, sendrecv
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
    /// Element type, several with commas between, or all: int8 uint8 int32 uint32 int64 uint64 float16 (half) float32
    /// (float) float64 (double) bfloat16
    #[arg(short = 'd', long = "datatype", value_name = "DTYPE", default_value = "float32", value_parser = dtypes)]
    dtypes: Choice<DataType>,
    /// Reduction, several with commas between, or all: sum prod max min avg premulsum
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "sum", value_parser = ops)]
    ops: Choice<Op>,
    /// Root, of collectives that have one
    #[arg(short = 'r', long = "root", value_name = "ROOT", default_value = "0", value_parser = number, allow_hyphen_values = true)]
    root: u32,
    /// Rank processes to start
    #[arg(long, value_name = "N", default_value = "2", value_parser = number, allow_hyphen_values = true)]
    ranks: u32,
    /// Driver: auto (Intel's if there is one, else the software driver), soft, intel [default: CCLX_DEVICE, or auto]
    #[arg(long)]
    device: Option<String>,
    /// 1 registers the buffers with the communicator before they are used
    #[arg(short = 'R', long = "local_register", value_name = "REGISTER", default_value = "0", value_parser = register, allow_hyphen_values = true)]
    register: u32,
    /// Algorithm, where it is to be forced: ring, mesh, oneshot, direct [default: CCL_ALLREDUCE, or auto]
    #[arg(long)]
    algo: Option<String>,
    /// Order of summation: ring, rank [default: CCLX_ORDER, or ring]
    #[arg(long)]
    order: Option<Order>,
    /// Record the call in a graph too and time so many replays; the input changes between those that are checked
    #[arg(long, value_name = "REPLAYS", value_parser = number, allow_hyphen_values = true)]
    graph: Option<u32>,
    /// Write the results to FILE as JSON, whole or not at all
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results to FILE as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw latency and bus bandwidth into FILE, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// For tests of the check: change one received element before it is compared.
    #[arg(long, hide = true)]
    corrupt: bool,
}

/// Messages of one datatype and reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) dtype: DataType,
    pub(super) op: Op,
    /// Elements of each message size, ascending.
    pub(super) counts: Vec<u64>,
}

/// One or several of something. (A plain list would be read as several arguments.)
#[derive(Clone, Debug)]
pub(super) struct Choice<T>(pub(super) Vec<T>);

/// A run that this build can do.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) what: What,
    /// Of collectives that have one.
    pub(super) root: usize,
    pub(super) ranks: usize,
    /// What is reduced, and how, one after the other.
    pub(super) series: Vec<Series>,
    pub(super) step: Step,
    pub(super) iterations: Option<u32>,
    pub(super) warmup: Option<u32>,
    pub(super) check: bool,
    pub(super) registered: bool,
    pub(super) replays: Option<u32>,
    pub(super) json: Option<PathBuf>,
    pub(super) csv: Option<PathBuf>,
    pub(super) plot: Option<PathBuf>,
    pub(super) corrupt: bool,
    /// What the ranks' environment decides.
    pub(super) config: Config,
    /// Variables that are set for the ranks.
    pub(super) variables: Vec<(&'static str, String)>,
}

impl Options {
    fn sizes(&self) -> impl Iterator<Item = u64> {
        self.series.iter().flat_map(|series| series.counts.iter().map(|count| count * series.dtype.size() as u64))
    }

    /// The least message.
    pub(super) fn min_bytes(&self) -> u64 {
        self.sizes().min().unwrap_or_default()
    }

    /// The largest message.
    pub(super) fn max_bytes(&self) -> u64 {
        self.sizes().max().unwrap_or_default()
    }
}

pub(super) fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("'{text}' is not a whole number from 0 up"))
}

fn register(text: &str) -> Result<u32, String> {
    match number(text)? {
        register @ (0 | 1) => Ok(register),
        // NCCL's tests have 2, for windows.
        other => Err(format!("{other} is not there; 1 registers the buffers, 0 doesn't")),
    }
}

fn factor(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 | 1 => Err("sizes don't grow by a factor below 2".into()),
        factor => Ok(factor.into()),
    }
}

pub(super) fn choice<T: PartialEq>(
    text: &str,
    all: impl IntoIterator<Item = T>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Choice<T>, String> {
    if text == "all" {
        return Ok(Choice(all.into_iter().collect()));
    }
    let mut chosen = Vec::new();
    for word in text.split(',') {
        let one = parse(word)?;
        if !chosen.contains(&one) {
            chosen.push(one);
        }
    }
    Ok(Choice(chosen))
}

fn dtypes(text: &str) -> Result<Choice<DataType>, String> {
    choice(text, DataType::ALL, |word| word.parse())
}

fn ops(text: &str) -> Result<Choice<Op>, String> {
    choice(text, Op::all(), |word| word.parse())
}

/// Times of so many calls are kept.
const MOST_CALLS: u32 = 10_000_000;

fn warmup(text: &str) -> Result<u32, String> {
    match number(text)? {
        calls if calls <= MOST_CALLS => Ok(calls),
        _ => Err(format!("more than {MOST_CALLS} calls")),
    }
}

pub(super) fn iterations(text: &str) -> Result<u32, String> {
    match warmup(text)? {
        0 => Err("at least 1 call must be timed".into()),
        calls => Ok(calls),
    }
}

impl Args {
    /// Refuses by name what can't be done. `environment` is that of this process.
    pub(super) fn resolve(self, environment: impl IntoIterator<Item = (String, String)>) -> Result<Options, String> {
        let known = || What::ALL.map(What::name).join(" ");
        let what = match What::ALL.into_iter().find(|what| what.name() == self.collective) {
            Some(what) => what,
            None if self.collective == "mhc" => {
                return Err("mhc has options of its own and comes first: ccl perf mhc --help".into());
            }
            None => return Err(format!("unknown collective '{}'; known: {} mhc", self.collective, known())),
        };
        if what != What::AllReduce {
            for (given, flag) in [(self.register != 0, "-R 1"), (self.algo.is_some(), "--algo")] {
                if given {
                    return Err(format!("{flag} is for all_reduce; {} has one way", what.name()));
                }
            }
        }
        if self.graph == Some(0) {
            return Err("--graph 0: at least 1 replay must be timed".into());
        }
        if let Some(path) = self.plot.as_ref().filter(|path| path.extension().is_none_or(|end| end != "svg")) {
            return Err(format!("--plot {}: it is drawn as SVG, so the name ends in .svg", path.display()));
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
        let forced = self.algo.clone();
        variables.extend(self.algo.map(|algo| ("CCL_ALLREDUCE", algo)));

        let config = configure(&mut variables, environment, self.ranks).map_err(|error| match &forced {
            Some(algo) if error.contains("CCL_ALLREDUCE") => format!("--algo {algo}: {error}"),
            _ => error,
        })?;

        let step = match (self.step, self.factor) {
            (Some(bytes), _) => Step::Bytes(bytes),
            (None, factor) => Step::Factor(factor.unwrap_or(4)),
        };
        let max = self.max.unwrap_or(self.min.max(64 << 20));
        let ranks = self.ranks as usize;
        let mut series = Vec::new();
        for &dtype in &self.dtypes.0 {
            let counts = sizes::counts(self.min, max, step, dtype.size() as u64)?;
            let counts = collective::counts(what, counts, ranks);
            // What reduces nothing has no reductions to go through.
            let ops = if what.reduces() { &self.ops.0[..] } else { &self.ops.0[..1] };
            for &op in ops {
                for count in [counts.first(), counts.last()].into_iter().flatten() {
                    supported(ranks, *count, dtype, op, self.register != 0, &config)?;
                }
                series.push(Series { dtype, op, counts: counts.clone() });
            }
        }
        Ok(Options {
            what,
            root: self.root as usize,
            ranks,
            series,
            step,
            iterations: self.iterations,
            warmup: self.warmup,
            check: self.check != 0,
            registered: self.register != 0,
            replays: self.graph,
            json: self.json,
            csv: self.csv,
            plot: self.plot,
            corrupt: self.corrupt,
            config,
            variables,
        })
    }
}

/// The configuration that ranks will have: of the environment, and above it of the variables that are set for them. The
/// software driver shows as many devices as there are ranks, unless the environment says how many.
pub(super) fn configure(
    variables: &mut Vec<(&'static str, String)>,
    environment: impl IntoIterator<Item = (String, String)>,
    ranks: u32,
) -> Result<Config, String> {
    let mut soft_devices = false;
    let inherited = environment.into_iter().filter(|(name, _)| {
        soft_devices |= name == "ZE_SOFT_DEVICES";
        !variables.iter().any(|(set, _)| set == name)
    });
    let inherited: Vec<_> = inherited.collect();
    let set = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let config = Config::from_vars(inherited.into_iter().chain(set)).map_err(|error| error.to_string())?;
    if !soft_devices {
        variables.push(("ZE_SOFT_DEVICES", ranks.to_string()));
    }
    Ok(config)
}

/// Asks the library for a plan, so that what it can't do is refused before a process is started.
fn supported(
    ranks: usize,
    count: u64,
    dtype: DataType,
    op: Op,
    registered: bool,
    config: &Config,
) -> Result<(), String> {
    // What the ranks will agree on is not known yet: what is refused because of it, they refuse themselves.
    let Slots { push_tiles, bulk_bytes } = Slots::of(DeviceFamily::Software, config);
    let agreed = Agreed {
        max_wires: config.max_wires,
        push_tiles,
        bulk_bytes,
        ..Agreed::ring(ranks, LineForm::L64, config.staging_tiles)
    };
    let op = op.of_rank(dtype, 0);
    let place = |registration| RegisteredRange { registration, offset: 0 };
    let registered = registered.then(|| Registered { send: place(0), recv: place(1) });
    let request = Request { count, dtype, op, order: config.order, period: None, registered };
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
        let [series] = &options.series[..] else { panic!("{:?}", options.series) };
        assert_eq!((options.ranks, series.dtype, series.op), (2, DataType::Float32, SUM));
        assert_eq!((series.counts[0], *series.counts.last().unwrap()), (2, 8 << 20));
        assert!(options.check && options.iterations.is_none() && options.warmup.is_none());
        assert_eq!(options.variables, [("ZE_SOFT_DEVICES", "2".to_owned())]);
    }

    #[test]
    fn nccl_tests_flags() {
        let line = "all_reduce -b 1K -e 4K -f 2 -n 7 -w 0 -c 0 -d half -o sum -r 3 --ranks 4 --device soft";
        let options = resolve(line, &[("ZE_SOFT_DEVICES", "9"), ("CCLX_DEVICE", "intel")]).unwrap();
        assert_eq!(options.series[0].counts, [512, 1024, 2048]);
        assert_eq!((options.iterations, options.warmup, options.check), (Some(7), Some(0), false));
        assert_eq!(options.variables, [("CCLX_DEVICE", "soft".to_owned())]);
        let counts = |line| resolve(line, &[]).unwrap().series[0].counts.clone();
        assert_eq!(counts("all_reduce -b 8 -e 16 -i 4"), [2, 3, 4]);
        assert_eq!(counts("all_reduce -b 1G"), [1 << 28]);
    }

    #[test]
    fn several_types_and_reductions() {
        let series = |line| resolve(line, &[]).map(|options| options.series);
        let some = series("all_reduce -b 8 -e 8 -d half,bf16,half -o sum").unwrap();
        assert_eq!(some.iter().map(|series| series.dtype).collect::<Vec<_>>(), [DataType::Float16, DataType::Bfloat16]);
        assert!(some.iter().all(|series| series.counts == [4]));
        let all = series("all_reduce -b 8 -e 16 -d all -o all").unwrap();
        assert_eq!(all.len(), 60);
        let of = |dtype| all.iter().find(|series| series.dtype == dtype).unwrap().counts.clone();
        assert_eq!((of(DataType::Int8), of(DataType::Int64)), (vec![8], vec![1]));
        assert!(series("all_reduce -d half,").is_err() && series("all_reduce -o all,sum").is_err());
    }

    const SUM: Op = Op::Plain(ccl_core::ReduceOp::Sum);

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (line, word) in [
            ("sendrecv -R 1", "-R 1 is for all_reduce; sendrecv has one way"),
            ("all_reduce -R 2", "2 is not there; 1 registers the buffers"),
            ("all_gather -R 1", "-R 1 is for all_reduce; all_gather has one way"),
            ("reduce --algo ring", "--algo is for all_reduce; reduce has one way"),
            ("mhc", "comes first"),
            ("all_reduction", "unknown collective 'all_reduction'"),
            ("all_reduce --algo direct", "by algorithm direct on 2 ranks: buffers are not registered"),
            ("all_reduce --algo tree", "--algo tree: "),
            ("all_reduce --algo ring --order rank", "order=rank"),
            ("all_reduce --graph 0", "--graph 0"),
            ("all_reduce --plot x.png", "SVG"),
            ("all_reduce -o median", "median"),
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
