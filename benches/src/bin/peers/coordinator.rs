//! Leads the contestants: each in its turn runs some calls of one size while all others sleep.
//!
//! What passes is lines of text over a Unix socket, one connection a rank:
//! `hello GROUP RANK PID` once from the rank; then `run VARIANT TYPE COUNT WARMUP CALLS SEED` to it, answered by
//! `done MEDIAN_NS LEAST_NS WRONG` or `failed WHY`; at the end `quit`. A run fills the input, calls WARMUP times, times
//! CALLS calls one by one without a barrier between, and checks one more call with fresh data.

use crate::contestants::{Group, Setting, Started, start};
use crate::data::Type;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// How long a library has to start, and to answer.
const START: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(180);

struct Seat {
    pid: u32,
    reader: BufReader<UnixStream>,
}

struct Team {
    seats: Vec<Seat>,
    started: Started,
    /// Processor time when its last turn ended.
    rested: Duration,
    /// Processor time used out of turn.
    restless: Duration,
}

/// What one turn gave, of the slowest rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) median_ns: f64,
    pub(crate) least_ns: f64,
    pub(crate) wrong: u64,
}

/// What a turn is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) variant: &'a str,
    pub(crate) dtype: Type,
    pub(crate) bytes: usize,
    pub(crate) warmup: usize,
    pub(crate) calls: usize,
    pub(crate) seed: u32,
}

pub(crate) struct Coordinator {
    teams: BTreeMap<Group, Team>,
    begun: Instant,
}

impl Coordinator {
    /// Starts all groups, one after the other, and waits until each rank has said hello.
    pub(crate) fn start(groups: &[Group], setting: &Setting<'_>) -> Result<Self, String> {
        let listener = UnixListener::bind(setting.socket).map_err(|e| format!("{}: {e}", setting.socket.display()))?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        let mut teams = BTreeMap::new();
        for &group in groups {
            let begun = Instant::now();
            let mut started = start(group, setting).map_err(|error| format!("{}: {error}", group.name()))?;
            let mut seats: BTreeMap<usize, Seat> = BTreeMap::new();
            while seats.len() < setting.ranks {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let (rank, seat) = hello(stream, group)?;
                        seats.insert(rank, seat);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if let Some(status) = started.ended() {
                            return Err(format!("{}: a process has ended at the start: {status}", group.name()));
                        }
                        if begun.elapsed() > START {
                            return Err(format!("{}: not started after {START:?}", group.name()));
                        }
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
            let seats: Vec<Seat> = seats.into_values().collect();
            let rested = processor_time(&seats);
            teams.insert(group, Team { seats, started, rested, restless: Duration::ZERO });
        }
        Ok(Self { teams, begun: Instant::now() })
    }

    /// One turn of a group.
    pub(crate) fn turn(&mut self, group: Group, order: &Order<'_>) -> Result<Turn, String> {
        let Some(team) = self.teams.get_mut(&group) else { return Err(format!("{} takes no part", group.name())) };
        team.restless += processor_time(&team.seats).saturating_sub(team.rested);
        let Order { variant, dtype, bytes, warmup, calls, seed } = order;
        let line = format!("run {variant} {} {} {warmup} {calls} {seed}\n", dtype.name(), bytes / dtype.size());
        let told = |rank: usize, why: &str| format!("{} rank {rank}, {bytes} bytes: {why}", group.name());
        for (rank, seat) in team.seats.iter_mut().enumerate() {
            seat.reader.get_mut().write_all(line.as_bytes()).map_err(|error| told(rank, &error.to_string()))?;
        }
        let mut slowest = Turn { median_ns: 0.0, least_ns: 0.0, wrong: 0 };
        for (rank, seat) in team.seats.iter_mut().enumerate() {
            let mut answer = String::new();
            match seat.reader.read_line(&mut answer) {
                Ok(0) => return Err(told(rank, "it is gone")),
                Ok(_) => {}
                Err(error) => return Err(told(rank, &format!("no answer within {ANSWER:?} ({error})"))),
            }
            let words: Vec<&str> = answer.split_whitespace().collect();
            let ["done", median, least, wrong] = words[..] else { return Err(told(rank, answer.trim())) };
            let (Ok(median), Ok(least), Ok(wrong)) =
                (median.parse::<f64>(), least.parse::<f64>(), wrong.parse::<u64>())
            else {
                return Err(told(rank, answer.trim()));
            };
            slowest.median_ns = slowest.median_ns.max(median);
            slowest.least_ns = slowest.least_ns.max(least);
            slowest.wrong += wrong;
        }
        team.rested = processor_time(&team.seats);
        Ok(slowest)
    }

    /// Of each group the share of the run in which one of its processes was at work out of turn. It takes time from
    /// whoever's turn it is.
    pub(crate) fn restlessness(&mut self) -> Vec<(Group, f64)> {
        let whole = self.begun.elapsed().as_secs_f64().max(1e-9);
        let share = |(group, team): (&Group, &mut Team)| {
            team.restless += processor_time(&team.seats).saturating_sub(team.rested);
            team.rested = processor_time(&team.seats);
            (*group, team.restless.as_secs_f64() / whole)
        };
        self.teams.iter_mut().map(share).collect()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        for team in self.teams.values_mut() {
            for seat in &mut team.seats {
                // One that is gone has ended already.
                let _ = seat.reader.get_mut().write_all(b"quit\n");
            }
            let _ = team.started.ended();
        }
    }
}

fn hello(stream: UnixStream, group: Group) -> Result<(usize, Seat), String> {
    let set = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(ANSWER)));
    set.map_err(|error| error.to_string())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(|error| error.to_string())?;
    let words: Vec<&str> = line.split_whitespace().collect();
    if let ["hello", name, rank, pid] = words[..]
        && name == group.name()
        && let (Ok(rank), Ok(pid)) = (rank.parse(), pid.parse())
    {
        return Ok((rank, Seat { pid, reader }));
    }
    Err(format!("{}: {}", group.name(), line.trim()))
}

/// Processor time of all threads of the ranks; nothing of one that is gone.
fn processor_time(seats: &[Seat]) -> Duration {
    let ticks = |seat: &Seat| {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", seat.pid)).unwrap_or_default();
        // The name in brackets may hold blanks; user and system time are the 12th and 13th field behind it.
        let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
        fields.map_or(0, |fields| fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
    };
    let sum: u64 = seats.iter().map(ticks).sum();
    // The unit of these fields on Linux, whatever the kernel's own clock.
    Duration::from_millis(10 * sum)
}
