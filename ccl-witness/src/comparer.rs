//! The comparer of a rank: takes what its calls left, one after the other, meets the other ranks' comparers over each, and
//! judges its part.
//!
//! Which calls belong together their numbers say. A rank that has drawn a call which another has not leaves it out: whoever
//! has the lower number takes its next, until all have the same.

use crate::check::{Case, factors};
use crate::evidence::Evidence;
use crate::exchange::{self, Header};
use crate::real;
use crate::report::say;
use crate::watched::{Job, Kept, Seat, Watched};
use ccl_core::bootstrap::{self, UniqueId};
use ccl_core::mesh::Mesh;
use ccl_core::{Error, Result};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Where the sockets to the other ranks come from.
pub(crate) enum Origin {
    /// The bytes of the id of the library underneath.
    Id(Box<[u8; 4096]>),
    /// The parent's comparer sends them.
    Parent(Receiver<Mesh>),
}

/// What the ranks tell each other first.
#[derive(Serialize, Deserialize)]
struct Hello {
    name: u32,
    share: u32,
    bound: Option<u32>,
}

struct Comparer<'a> {
    watched: &'a Watched,
    mesh: &'a Mesh,
    seat: Seat,
    name: u32,
    bound: Option<u32>,
    limit: Duration,
    evidence: Evidence,
    /// The call that was compared last, where it may have to be saved, and how many results of it this rank convicted.
    before: Option<Box<Kept>>,
    wrong_before: u64,
}

/// Works until the communicator ends, or comparing does.
pub(crate) fn run(watched: &Watched, origin: Origin) {
    match form(watched, origin) {
        Ok(mesh) => {
            if let Err(error) = work(watched, &mesh) {
                watched.give_up(&error.to_string());
                mesh.abandon(&error);
            }
        }
        Err(why) => watched.give_up(&why),
    }
}

fn form(watched: &Watched, origin: Origin) -> std::result::Result<Mesh, String> {
    let config = real::config().as_ref().map_err(Clone::clone)?;
    match (origin, watched.known_seat()) {
        (Origin::Id(id), Some(Seat { rank, n })) => UniqueId::derived(&*id)
            .and_then(|id| bootstrap::join(&id, rank, n, config.connection_timeout))
            .map_err(|error| error.to_string()),
        (Origin::Parent(parent), _) => {
            let mesh = parent.recv_timeout(config.connection_timeout);
            let mesh = mesh.map_err(|_| "the communicator that it was split from is compared no more".to_owned())?;
            watched.sit(Seat { rank: mesh.rank(), n: mesh.world_size() });
            Ok(mesh)
        }
        (Origin::Id(_), None) => Err("no place in the group".into()),
    }
}

fn work(watched: &Watched, mesh: &Mesh) -> Result<()> {
    let config = real::config().as_ref().map_err(|error| Error::InvalidArgument(error.clone()))?;
    let seat = Seat { rank: mesh.rank(), n: mesh.world_size() };
    let name = RandomState::new().hash_one(std::process::id()) as u32;
    let own = Hello { name, share: config.witness_share, bound: config.witness_overhead };
    let encoded = serde_json::to_vec(&own).map_err(|error| Error::Internal(error.to_string()))?;
    mesh.set_deadline(config.connection_timeout);
    let hellos: Vec<Hello> = mesh
        .all_gather(&encoded, "the witnesses' hello")?
        .iter()
        .map(|bytes| serde_json::from_slice(bytes).map_err(|error| Error::Internal(format!("a hello: {error}"))))
        .collect::<Result<_>>()?;
    let name = hellos.first().map_or(0, |hello| hello.name);
    let _ = watched.name.set(name);
    let share = hellos.iter().map(|hello| hello.share).min().unwrap_or(0);
    if share != config.witness_share {
        watched.agree(share);
    }
    let bound = hellos.iter().filter_map(|hello| hello.bound).min();
    let (limit, evidence) = (config.timeout, Evidence::default());
    let mut comparer = Comparer { watched, mesh, seat, name, bound, limit, evidence, before: None, wrong_before: 0 };
    let ended = comparer.work();
    // Where the others were not told any more.
    comparer.settle(&[]);
    ended
}

impl Comparer<'_> {
    fn work(&mut self) -> Result<()> {
        loop {
            let Some(job) = self.watched.queue.next() else {
                return Err(Error::InvalidUsage(format!("rank {} compares nothing any more", self.seat.rank)));
            };
            let over = self.take(job)?;
            self.watched.beside.store(processor_time().as_nanos() as u64, Ordering::Relaxed);
            if over {
                return Ok(());
            }
        }
    }

    /// Meets the others over one thing that this rank has; whether it was the last.
    fn take(&mut self, job: Job) -> Result<bool> {
        let nothing = vec![Vec::new(); self.seat.n];
        let (header, data) = match &job {
            Job::Call(kept) => self.introduce(kept),
            Job::Split { number, .. } => (Header::new(*number, "a split of the communicator".into()), nothing),
            Job::End => (Header::new(u64::MAX, "the communicator's end".into()), nothing),
        };
        loop {
            let mut own = header.clone();
            own.taken = self.watched.spent().part();
            own.wrong_before = self.wrong_before;
            let met = match exchange::meet(self.mesh, own, &data, self.limit) {
                Ok(met) => met,
                // Whoever comes to the end finds those gone that were there before, or waits for those that never come.
                Err(Error::PeerLost { .. } | Error::Timeout { .. }) if matches!(job, Job::End) => return Ok(true),
                Err(error) => return Err(error),
            };
            self.settle(&met.headers);
            let latest = met.headers.iter().map(|header| header.number).max().unwrap_or(0);
            if let Some(bound) = self.bound
                && latest != u64::MAX
            {
                let taken = met.headers.iter().fold(0.0, |most: f64, header| most.max(header.taken));
                self.watched.adapt(latest, taken, f64::from(bound) / 100.0);
            }
            if header.number < latest {
                let why = if latest == u64::MAX { "another rank had ended" } else { "not drawn by every rank" };
                self.watched.tally.lock().leave_out(why, u64::from(matches!(job, Job::Call(_))));
                return Ok(false);
            }
            if met.headers.iter().any(|other| other.number < latest) {
                continue;
            }
            if let Some((rank, odd)) = met.headers.iter().enumerate().find(|(_, other)| other.what != header.what) {
                return Err(Error::InvalidUsage(format!(
                    "ranks disagree on call #{latest}: rank {} makes {}, rank {rank} {}",
                    self.seat.rank, header.what, odd.what
                )));
            }
            return match job {
                Job::End => Ok(true),
                Job::Split { color, key, made, .. } => self.part(color, key, &made).map(|()| false),
                Job::Call(kept) => self.compare(kept, met, &data).map(|()| false),
            };
        }
    }

    /// What the others have to know of a call, and what each of them needs of it.
    fn introduce(&self, kept: &Kept) -> (Header, Vec<Vec<u8>>) {
        let Seat { rank, n } = self.seat;
        let mut header = Header::new(kept.number, kept.call.name());
        header.factor = kept.call.factor().map(|factor| (factor.dtype() as u32, factor.bits()));
        let data = match &kept.data {
            Ok((input, output)) => {
                let of = |judge| {
                    let (from, to) = (kept.call.input_for(n, rank, judge), kept.call.output_for(n, judge));
                    [&input[from], &output[to]].concat()
                };
                (0..n).map(of).collect()
            }
            Err(why) => {
                header.unfit = Some(why.clone());
                vec![Vec::new(); n]
            }
        };
        (header, data)
    }

    /// What the ranks found of the call before: those that any convicted are saved by all.
    fn settle(&mut self, headers: &[Header]) {
        let own = std::mem::take(&mut self.wrong_before);
        let wrong = headers.iter().map(|header| header.wrong_before).sum::<u64>().max(own);
        let before = self.before.take();
        if wrong == 0 {
            return;
        }
        self.watched.tally.lock().convicted += 1;
        if let Some(kept) = before {
            match self.evidence.save(&kept, self.seat, self.name) {
                Ok(true) => self.watched.tally.lock().saved += 1,
                Ok(false) => {}
                Err(error) => say(&format!("the convicted call #{} is not saved: {error}", kept.number)),
            }
        }
    }

    fn compare(&mut self, kept: Box<Kept>, met: exchange::Met, data: &[Vec<u8>]) -> Result<()> {
        let unfit = met.headers.iter().enumerate().find_map(|(rank, header)| Some((rank, header.unfit.clone()?)));
        if let Some((rank, why)) = unfit {
            let why =
                if why.starts_with("the library") || kept.data.is_err() { why } else { format!("rank {rank}: {why}") };
            self.watched.tally.lock().leave_out(&why, 1);
            return Ok(());
        }
        let factors = factors(met.headers.iter().map(|header| header.factor));
        let came = met.rest(self.mesh, data, self.limit)?;
        let Ok((_, output)) = &kept.data else { return Ok(()) };
        let case =
            Case { number: kept.number, call: &kept.call, seat: self.seat, factors: &factors, came: &came, output };
        let outcome = case.judge();
        if let Some(misfit) = outcome.misfit {
            let text = format!("ranks disagree on call #{}, {}: {misfit}", kept.number, kept.call.name());
            say(&format!("communicator {:08x}: {text}", self.name));
            self.watched.tally.lock().leave_out("the ranks' calls don't fit together", 1);
            return Ok(());
        }
        let mut tally = self.watched.tally.lock();
        tally.compared += 1;
        tally.elements += outcome.elements;
        tally.open_elements += outcome.open;
        tally.unlike += u64::from(outcome.unlike && outcome.wrong.is_empty());
        tally.convicted_here += u64::from(!outcome.wrong.is_empty());
        self.wrong_before = outcome.wrong.len() as u64;
        for wrong in outcome.wrong {
            tally.convict(self.name, self.seat, wrong);
        }
        drop(tally);
        self.before = Evidence::is_wanted().then_some(kept);
        Ok(())
    }

    /// As the ranks part, so do their sockets.
    fn part(&self, color: Option<u32>, key: i32, made: &std::sync::mpsc::Sender<Mesh>) -> Result<()> {
        let wish = serde_json::to_vec(&(color, key)).map_err(|error| Error::Internal(error.to_string()))?;
        self.mesh.set_deadline(self.limit);
        let wishes: Vec<(Option<u32>, i32)> = self
            .mesh
            .all_gather(&wish, "colours of a split")?
            .iter()
            .map(|bytes| serde_json::from_slice(bytes).map_err(|error| Error::Internal(format!("a colour: {error}"))))
            .collect::<Result<_>>()?;
        let mut members: Vec<usize> =
            (0..wishes.len()).filter(|rank| color.is_some() && wishes[*rank].0 == color).collect();
        // Stable: equal keys keep their order.
        members.sort_by_key(|rank| wishes[*rank].1);
        let mesh = self.mesh.part(&members)?;
        if color.is_some() {
            // Whoever waited may have given up.
            let _ = made.send(mesh);
        }
        Ok(())
    }
}

/// Of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
